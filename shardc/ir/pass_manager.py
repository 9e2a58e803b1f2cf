"""Passes written in Python, and the C++ ones that jaxlib registers."""

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from jax.extend.mlir import ir, passmanager

from shardc.errors import ShardcError
from shardc.ir.bugs import bug_of
from shardc.solver.interrupt import poll


def options(each: "Pass | type[Pass]") -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a pass that text can set; the others have `repr=False`: what an analysis found
    in the very module that is rewritten, where the caller has asked for it already."""
    return tuple(field for field in dataclasses.fields(each) if field.repr)


@dataclass(frozen=True)
class Pass:
    """A rewrite of a module. Its fields are its options, its docstring is its manual.

    Attributes:
        name: the command name, `shardc-...`.
        never_refuses: why the pass has no failure test, where it cannot refuse anything.
        changes_types: results of functions may get other element types.
    """

    name: ClassVar[str]
    never_refuses: ClassVar[str] = ""
    changes_types: ClassVar[bool] = False

    def __str__(self) -> str:
        """As `shardc-opt --passes` reads it; options that have their defaults are left out."""
        changed = [
            f"{option.name.replace('_', '-')}={_print_value(getattr(self, option.name))}"
            for option in options(self)
            if getattr(self, option.name) != option.default
        ]
        return f"{self.name}{{{' '.join(changed)}}}" if changed else self.name

    def apply(self, module: ir.Operation) -> None:
        """Rewrites `module` in place; raises ShardcError where it refuses."""
        raise NotImplementedError


Watcher = Callable[[Pass, ir.Module], None]
_watchers: list[Watcher] = []


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Has `watcher` called with each pass that has run, and the module behind it."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def run_passes(module: ir.Module, passes: Sequence[Pass], *, verify: bool = True) -> None:
    """Applies passes in order and has MLIR verify the module after each.

    Raises:
        ShardcError: what a pass refuses.
        BugError: SHARDC-999, a pass failed or left invalid IR; its reproducer runs with shardc-opt.
    """
    before = module.operation.clone()
    for done, each in enumerate(passes, start=1):
        poll()
        with module.context, ir.Location.unknown():
            try:
                each.apply(module.operation)
                if verify:
                    module.operation.verify()
            except (ShardcError, MemoryError):
                raise
            except Exception as error:  # a bug of ours, whatever it is
                recipe = f"RUN: shardc-opt %s --passes={shlex.quote(print_passes(passes[:done]))}"
                doing = f"running {each.name}"
                raise bug_of(error, doing, before, recipe, module.operation) from error
            for watcher in _watchers:
                watcher(each, module)


def print_passes(passes: Sequence[Pass]) -> str:
    """The passes as `shardc-opt --passes` reads them, the inverse of `parse_passes`."""
    return ",".join(map(str, passes))


def _print_value(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ";".join(map(_print_value, value))
    return shlex.quote(str(value))


def run_registered(module: ir.Operation, pipeline: str, *, verify: bool = True) -> None:
    """Runs C++ passes, such as `func.func(sdy-populate-op-sharding-rules)`, on a module."""
    with module.context:
        manager = passmanager.PassManager.parse(f"builtin.module({pipeline})")
        manager.enable_verifier(verify)
        manager.run(module)
