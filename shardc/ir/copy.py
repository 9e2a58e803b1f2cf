"""Copies and digests of whole modules, through bytecode: large constants are never printed."""

import hashlib
import io
from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_passes, run_registered
from shardc.ir.walk import walk


def bytecode(module: ir.Operation) -> bytes:
    """A module as MLIR bytecode."""
    buffer = io.BytesIO()
    module.write_bytecode(buffer)
    return buffer.getvalue()


def bare_bytecode(module: ir.Operation) -> bytes:
    """A module as MLIR bytecode without locations; strips them from `module` too."""
    run_registered(module, "strip-debuginfo")
    return bytecode(module)


def copy_module(module: ir.Module) -> ir.Module:
    """A copy in the same context, locations included."""
    with module.context:
        return ir.Module.parse(bytecode(module.operation))


def module_digest(module: ir.Module, *, weak_types: bool = True) -> str:
    """SHA-256 of a module, independent of locations.

    Args:
        weak_types: whether converts to a value's own type count, the only trace of JAX's weak
            types.
    """
    with module.context:
        bare = module.operation.clone()
        if not weak_types:
            _drop_empty_converts(bare)
        run_registered(bare, "strip-debuginfo")
        sink = _Sink()
        bare.write_bytecode(sink)
    return sink.digest.hexdigest()


def _drop_empty_converts(module: ir.Operation) -> None:
    for op in list(walk(module)):
        if op.name == "stablehlo.convert" and op.operands[0].type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


class _Sink:
    """A file object that only digests what is written to it."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return len(data)


def run_on_copy(module: ir.Module, passes: Sequence[Pass]) -> ir.Module:
    """A copy of the module after `passes`; what fails leaves nothing behind."""
    copy = copy_module(module)
    run_passes(copy, passes)
    return copy
