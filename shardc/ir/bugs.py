"""What no user can cause: said with a code, a place, and a file to attach to a report."""

import importlib
import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import jax
from jax.extend.mlir import ir

from shardc.errors import BugError, ShardcError
from shardc.ir.walk import walk, where

_HOME = str(Path(__file__).parents[1])


@contextmanager
def bugs_while(
    doing: str,
    module: ir.Module | None = None,
    options: str = "",
    but: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turns whatever arises inside and has no code into a BugError (SHARDC-999).

    Nothing of the user's own may run inside. Interrupts and a lack of memory are no bugs.

    Args:
        but: exceptions that others raise inside, which stay as they are.
        doing: "planning", as in "while planning".
        module: what the reproducer holds, as it was before; None: there is none yet.
        options: what it was done with, for the reproducer.
    """
    try:
        yield
    except (ShardcError, MemoryError):
        raise
    except Exception as error:  # this is the door
        if isinstance(error, but) or "RESOURCE_EXHAUSTED" in str(error):
            raise
        before = None if module is None else module.operation
        raise bug_of(error, doing, before, options) from error


def bug_of(
    error: Exception,
    doing: str,
    before: ir.Operation | None,
    recipe: str = "",
    now: ir.Operation | None = None,
) -> BugError:
    """The error that says all of `error` that a report needs.

    Args:
        before: the module from which `recipe` (a command, options) reproduces the failure.
        now: the module that was being worked on, in which the op is looked for.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_HOME)]
    frame = (own or frames)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno} ({frame.name})"
    what = f"{type(error).__name__}: {error}".strip().rstrip(":")
    version = importlib.import_module("shardc").__version__
    lines = [f"shardc {version}, jax {jax.__version__}, while {doing}: {what} at {place}"]
    path = None if before is None else _write([*lines, *recipe.splitlines()], before)
    trace = "" if os.environ.get("SHARDC_TRACEBACK") else " and, with SHARDC_TRACEBACK=1, its trace"
    bug = BugError(
        f"a bug in shardc while {doing}: {what} ({place})",
        where=_op_of(error.__traceback__, now),
        help=f"please report it with {path or 'the program'}{trace}",
    )
    bug.reproducer = path
    return bug


def _write(comments: list[str], module: ir.Operation) -> str:
    handle, path = tempfile.mkstemp(prefix="shardc-bug-", suffix=".mlir")
    with os.fdopen(handle, "w") as file, module.context:
        file.writelines(f"// {comment}\n" for comment in comments)
        file.write(str(module.get_asm(enable_debug_info=True)))
    return path


def _op_of(trace: TracebackType | None, module: ir.Operation | None) -> str | None:
    """The op of `module` that the innermost frame that knows one was at."""
    if module is None:
        return None
    alive = set(walk(module))  # a name in a frame may stand for an op that is gone
    for frame, _ in reversed(list(traceback.walk_tb(trace))):
        for value in frame.f_locals.values():
            op = value.operation if isinstance(value, ir.OpView) else value
            if isinstance(op, ir.Operation) and op in alive and op.name != "func.func":
                return f"'{op.name}' at {where(op)}"
    return None
