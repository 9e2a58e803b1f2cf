"""Reads one StableHLO module from bytes; run as a script, it is the child that may crash.

MLIR's parser is not hardened, so a separate process reads a file first. This file imports nothing
from shardc: `python parse_module.py NAME <FILE >BYTECODE` is self-contained. It does without JAX,
whose import takes longer than most files: jaxlib has the bindings.
"""

import gzip
import io
import json
import re
import sys
import zlib

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

REFUSED = 65  # exit code: standard output has {"message", "line"} instead of a module
_MAX_NUM_BYTES = 1 << 33
_BYTECODE = b"ML\xefR"
_GZIP = b"\x1f\x8b"


class ParseError(Exception):
    """What is wrong with a file, and in which line (None for binary files)."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def is_text(data: bytes) -> bool:
    """Whether a file is MLIR text; everything else should be read by a child process."""
    return not data.startswith((_BYTECODE, _GZIP)) and b"\0" not in data[:4096]


def _unpack(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            unpacked = stream.read(_MAX_NUM_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ParseError(f"the gzip data is damaged: {error}") from error
    if len(unpacked) > _MAX_NUM_BYTES:
        raise ParseError(f"more than {_MAX_NUM_BYTES >> 30} GiB come out of the gzip data")
    return unpacked


def _name_positions(module: ir.Module, name: str) -> None:
    """Replaces the file name "-" in locations by `name`; the parser saw only bytes."""

    def renamed(location: ir.Location) -> ir.Location:
        if isinstance(location, ir.FileLineColLoc) and location.filename == "-":
            return ir.Location.file(name, location.start_line, location.start_col)
        return location

    def visit(op: ir.Operation) -> None:
        op.location = renamed(op.location)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(renamed(argument.location))
                for inner in block.operations:
                    visit(inner.operation)

    visit(module.operation)


_ESCAPED = re.compile(r"\\\\|((?:\\[0-9A-F]{2})+)")  # but not an escaped backslash


def _check_strings(module: ir.Module) -> None:
    """Refuses names and strings that are not UTF-8: reading one in Python aborts the process."""
    text = str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=16))
    for escaped in filter(None, _ESCAPED.findall(text)):
        try:
            bytes.fromhex(escaped.replace("\\", "")).decode()
        except UnicodeDecodeError as error:
            raise ParseError("it has a name or a string that is not UTF-8") from error


def _describe(error: ir.MLIRError) -> ParseError:
    for diagnostic in error.error_diagnostics:
        location = ir.Location.from_attr(diagnostic.location.attr)
        line = 0
        if isinstance(location, ir.FileLineColLoc) and location.filename == "-":
            line = location.start_line
        return ParseError(diagnostic.message, line or None)
    return ParseError(str(error))


def parse_module(data: bytes, name: str, context: ir.Context) -> ir.Module:
    """Text, bytecode or a portable (VHLO) artifact, plain or gzipped, as a verified module.

    Args:
        name: of the file in locations.
    Raises:
        ParseError: it is none of these.
    """
    data = _unpack(data)
    if not data.strip():
        raise ParseError("the file is empty")
    portable = data.startswith(_BYTECODE) and b"StableHLO_v" in data[:64]
    if not data.startswith(_BYTECODE) and b"\0" in data:
        raise ParseError("it is neither MLIR text nor MLIR bytecode")
    with context:
        try:
            if portable:
                data = stablehlo.deserialize_portable_artifact_str(data)
            module = ir.Module.parse(data)
        except ir.MLIRError as error:
            raise _describe(error) from error
        except ValueError as error:
            raise ParseError(f"the portable artifact cannot be read: {error}") from error
        if not data.isascii():
            _check_strings(module)
        try:
            _name_positions(module, name)
        except RecursionError as error:
            raise ParseError("its ops are nested too deeply") from error
    return module


def child_context() -> ir.Context:
    """A context with the dialects of JAX's own, which are not public before JAX is imported."""
    try:
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy

        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        context = ir.Context()
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        for dialect in (sdy, mpmd, chlo, stablehlo):
            dialect.register_dialect(context)
        mhlo.register_mhlo_dialect(context)
    except (ImportError, AttributeError):  # another jaxlib has them elsewhere: JAX knows where
        from jax.interpreters import mlir as jax_mlir

        return jax_mlir.make_ir_context()
    return context


def main() -> int:
    """Standard input to bytecode on standard output; REFUSED and JSON if it cannot be read."""
    sys.setrecursionlimit(500)  # so that what passes here does not exhaust the parent's stack
    try:
        module = parse_module(sys.stdin.buffer.read(), sys.argv[1], child_context())
    except ParseError as error:
        json.dump({"message": str(error), "line": error.line}, sys.stdout)
        return REFUSED
    module.operation.write_bytecode(sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
