"""Passes written in Python, and the C++ passes that jaxlib registers."""

import dataclasses
import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec
from jax.extend.mlir import ir, passmanager

from shardc.errors import ShardcError
from shardc.ir.bugs import bug_of
from shardc.solver.interrupt import poll


def options(each: "Pass | type[Pass]") -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a pass that text can set. The others have `repr=False`: analysis results for
    the same module that the caller already has."""
    return tuple(field for field in dataclasses.fields(each) if field.repr)


def as_json(data: object) -> str:
    return msgspec.json.encode(data).decode()


def in_text[Data](
    read: Callable[[str], Data], write: Callable[[Data], str] = as_json
) -> dict[str, Any]:
    """The metadata of a field that is data: how text gives it.

    Args:
        read: raises a ShardcError for text that is no such data.
    """
    return {"read": read, "write": write}


@dataclass(frozen=True)
class Pass:
    """A rewrite of a module. Its fields are its options, its docstring is its manual.

    Attributes:
        name: the command name, `shardc-...`.
        never_refuses: why the pass cannot refuse anything, and so has no failure test.
        changes_types: whether results of functions may get other element types.
    """

    name: ClassVar[str]
    never_refuses: ClassVar[str] = ""
    changes_types: ClassVar[bool] = False

    def __str__(self) -> str:
        """The pass in the syntax of `shardc-opt --passes`, without options at their defaults."""
        changed = [
            f"{option.name.replace('_', '-')}={_print_option(option, getattr(self, option.name))}"
            for option in options(self)
            if getattr(self, option.name) != option.default
        ]
        return f"{self.name}{{{' '.join(changed)}}}" if changed else self.name

    def apply(self, module: ir.Operation) -> None:
        """Rewrites `module` in place; raises ShardcError if it refuses the module."""
        raise NotImplementedError


_known: WeakKeyDictionary[ir.Module, dict[object, Any]] = WeakKeyDictionary()


def cached[Facts](analysis: Callable[[ir.Operation], Facts]) -> Callable[[ir.Module], Facts]:
    """The analysis of a whole module, computed once until a pass runs on the module.

    Its result is data and shared by all who ask: it must hold no IR, which would keep the module
    alive, and nobody may change it.
    """

    @functools.wraps(analysis)
    def ask(module: ir.Module) -> Facts:
        facts = _known.setdefault(module, {})
        if analysis not in facts:
            facts[analysis] = analysis(module.operation)
        found: Facts = facts[analysis]
        return found

    return ask


Watcher = Callable[[Pass, ir.Module], None]
_watchers: list[Watcher] = []


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Inside, calls `watcher` after each pass, with the pass and the module."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def run_passes(module: ir.Module, passes: Sequence[Pass], *, verify: bool = True) -> None:
    """Applies passes in order; MLIR verifies the module after each. What is known of the module
    (`cached`) is forgotten.

    Raises:
        ShardcError: a pass refuses the module.
        BugError: SHARDC-999, a pass failed or left invalid IR; its reproducer runs with shardc-opt.
    """
    before = module.operation.clone()
    for done, each in enumerate(passes, start=1):
        poll()
        _known.pop(module, None)
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
    """The passes in the syntax of `shardc-opt --passes`, the inverse of `parse_passes`."""
    return ",".join(map(str, passes))


def _print_option(option: dataclasses.Field[Any], value: object) -> str:
    write = option.metadata.get("write")
    return _print_value(value) if write is None else shlex.quote(write(value))


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
