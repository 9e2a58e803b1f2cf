"""Which rows an op of a slice works on, or why it cannot."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.token_loop import TokenLoop
from shardc.analysis.slices.held_parts import Roles
from shardc.rules.running_sums import Running


@dataclass(frozen=True)
class LooksAhead:
    """Why slices cannot run one after the other: an op, and the rows it would need."""

    op: ir.Operation
    why: str


@dataclass(frozen=True)
class OpRows:
    """The rows that an op works on: of its operands, and of its results before they are finished.

    Attributes:
        finished: the dim of the result that later slices add to; None if none do.
        carried: the running total over earlier slices that the op continues; None if there is none.
        rerun: whether the total is recomputed, because `operands` has all rows so far.
        loop: the op, if slices run its iterations.
    """

    operands: tuple[Roles, ...]
    finished: int | None = None
    carried: Running | None = None
    rerun: bool = False
    loop: TokenLoop | None = None
