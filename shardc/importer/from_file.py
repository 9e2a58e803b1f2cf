"""Import of an untrusted StableHLO file."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.importer import parse_module
from shardc.importer.check_ops import (
    refuse_host_calls,
    refuse_other_dialects,
    refuse_stateful_ops,
)
from shardc.importer.program import Imported, describe, name_arguments
from shardc.ir.context import parse
from shardc.ir.walk import main_function
from shardc.progress import shown_progress

_QUANTISED = re.compile(r'!"?quant"?[.<]')
_HELP = (
    "give StableHLO text or bytecode, such as `shardc.export(f, *args, path='step.mlir')` or"
    " `shardc export train:step train:arguments -o step.mlir` write"
)


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes, `-` is standard input; ImportFileError (SHARDC-120) if unreadable."""
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ImportFileError(
            f"'{path}' cannot be read: {error.strerror or error}",
            where=str(path),
            help="check the path",
        ) from error


def refused(name: str, message: str, line: int | None) -> ImportFileError:
    """SHARDC-120 for a file that is not a module; SHARDC-124 if it has quantised types."""
    place = name if line is None else f"{name}:{line}"
    if _QUANTISED.search(message):
        return ImportFileError(
            f"'{name}' has quantised types, which JAX does not run",
            where=place,
            code="SHARDC-124",
            help="export the model in floating point, or with integers and explicit scales",
        )
    return ImportFileError(f"'{name}' is not a module: {message}", where=place, help=_HELP)


def parse_in_child(data: bytes, name: str, timeout_s: float = 600.0) -> bytes:
    """Parses and verifies `data` in a child process; returns clean bytecode.

    Raises:
        ImportFileError: SHARDC-120, no module, or the parser crashed or hung on it.
    """
    command = [sys.executable, "-P", "-W", "ignore", parse_module.__file__, name]
    try:
        child = subprocess.run(command, input=data, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise refused(name, f"reading it took more than {timeout_s:g} s", None) from error
    if child.returncode == 0:
        return child.stdout
    if child.returncode == parse_module.REFUSED:
        answer = json.loads(child.stdout)
        raise refused(name, answer["message"], answer["line"])
    if child.returncode < 0:
        crash = signal.Signals(-child.returncode).name
        raise refused(name, f"MLIR's parser crashed on it ({crash})", None)
    last = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
    raise refused(name, f"the parser failed: {''.join(last)}", None)


def import_file(path: str | Path, *, timeout_s: float = 600.0) -> Imported:
    """Reads MLIR text, bytecode or a portable artifact, plain or gzipped (`-`: standard input).

    An argument's name is the name of its location (`jax.jit(...).as_text(debug_info=True)` writes
    it), else "argument 3". Donated arguments are those with `tf.aliasing_output` or
    `jax.buffer_donor`.

    Raises:
        ImportFileError: SHARDC-120 the file is no module, SHARDC-121 it has no function to run,
            SHARDC-123 it calls the host, SHARDC-124 it has a shape that is not static or a
            quantised type, SHARDC-126 an op of it may run only once.
    """
    name = "<stdin>" if str(path) == "-" else str(path)
    with shown_progress(f"reading {name}"):
        module = parse(parse_in_child(read_bytes(path), name, timeout_s))
    with module.context, ir.Location.unknown():
        name_arguments(main_function(module.operation))
        arguments, results = describe(module)
        refuse_host_calls(module.operation)
        refuse_stateful_ops(module.operation)
        refuse_other_dialects(module.operation)
    return Imported(module, arguments, results)
