"""Passes written in Python, and the C++ ones that jaxlib registers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir, passmanager

from shardc.errors import ShardcError


@dataclass(frozen=True)
class Pass:
    """A rewrite of a module. Its fields are its options, its docstring is its manual.

    Attributes:
        name: the command name, `shardc-...`.
        never_refuses: why the pass has no failure test, where it cannot refuse anything.
    """

    name: ClassVar[str]
    never_refuses: ClassVar[str] = ""

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
        ShardcError: what a pass refuses, or SHARDC-900 where a pass left invalid IR.
    """
    for each in passes:
        with module.context, ir.Location.unknown():
            each.apply(module.operation)
            if verify:
                try:
                    module.operation.verify()
                except ir.MLIRError as error:
                    raise ShardcError(
                        f"pass {each.name} produced invalid MLIR: {error}",
                        help="this is a bug of shardc; please report it with the program",
                    ) from error
            for watcher in _watchers:
                watcher(each, module)


def run_registered(module: ir.Operation, pipeline: str, *, verify: bool = True) -> None:
    """Runs C++ passes, such as `func.func(sdy-populate-op-sharding-rules)`, on a module."""
    with module.context:
        manager = passmanager.PassManager.parse(f"builtin.module({pipeline})")
        manager.enable_verifier(verify)
        manager.run(module)
