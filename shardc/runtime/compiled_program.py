"""The interface of a compiled program; the backend and the tests implement it."""

from collections.abc import Sequence
from typing import Any, Protocol

import jax
from jax.sharding import NamedSharding

from shardc.plan.executable import StageProgram, ValueSpec


class Call(Protocol):
    """Takes arrays, dispatches the work, and returns the arrays that it will produce."""

    def __call__(self, *args: jax.Array) -> Sequence[Any]: ...


class Program(Protocol):
    """A stage program on its devices.

    Attributes:
        call: takes the arrays of `args`, returns those of `results`; never blocks.
        args: what to pass, in order.
        results: what it returns, in order.
        in_shardings: one per arg, on the stage's devices.
        out_shardings: one per result.
        donated: positions in `args` whose buffers are deleted by the call.
    """

    @property
    def program(self) -> StageProgram: ...
    @property
    def call(self) -> Call: ...
    @property
    def args(self) -> tuple[ValueSpec, ...]: ...
    @property
    def results(self) -> tuple[ValueSpec, ...]: ...
    @property
    def in_shardings(self) -> tuple[NamedSharding, ...]: ...
    @property
    def out_shardings(self) -> tuple[NamedSharding, ...]: ...
    @property
    def donated(self) -> tuple[int, ...]: ...
