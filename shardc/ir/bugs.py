"""Internal errors: reported with a code, a place, and a reproducer to attach to a report."""

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
from shardc.version import VERSION

_HOME = str(Path(__file__).parents[1])


@contextmanager
def bugs_while(
    doing: str,
    module: ir.Module | None = None,
    options: str = "",
    but: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turns any exception without a code into a BugError (SHARDC-999).

    No user code may run inside. Interrupts and out-of-memory errors are not bugs.

    Args:
        but: exceptions of other libraries, which pass through unchanged.
        doing: "planning", as in "while planning".
        module: the module before the failure, for the reproducer; None: there is none yet.
        options: the options in use, for the reproducer.
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
    """The BugError for `error`, with everything that a report needs.

    Args:
        before: the module from which `recipe` (a command, options) reproduces the failure.
        now: the module at the time of the failure, which is searched for the op.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_HOME)]
    frame = (own or frames)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno} ({frame.name})"
    what = f"{type(error).__name__}: {error}".strip().rstrip(":")
    lines = [f"shardc {VERSION}, jax {jax.__version__}, while {doing}: {what} at {place}"]
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
    """The op of `module` in the innermost frame that has one as a local variable."""
    if module is None:
        return None
    alive = set(walk(module))  # a local variable may hold an erased op
    for frame, _ in reversed(list(traceback.walk_tb(trace))):
        for value in frame.f_locals.values():
            op = value.operation if isinstance(value, ir.OpView) else value
            if isinstance(op, ir.Operation) and op in alive and op.name != "func.func":
                return f"'{op.name}' at {where(op)}"
    return None
