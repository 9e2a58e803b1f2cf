"""Loops whose iterations go along the tokens, one row of each operand per iteration."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop, row_loop, row_read
from shardc.ir.clone import captures


@dataclass(frozen=True)
class TokenLoop:
    """A recurrence, as slices of its rows run it.

    Attributes:
        rows: the loop, and the rows of an iteration.
        cut: captured value -> the dim of which an iteration reads its row; nothing else is read.
        carried: positions of what goes on from the last iteration of a slice to the next one.
    """

    rows: RowLoop
    cut: dict[ir.Value, int]
    carried: tuple[int, ...]


def token_loop(loop: ir.Operation) -> TokenLoop | None:
    """How slices run `loop`; None if it does not read rows one after the other."""
    rows = row_loop(loop)
    if rows is None or not rows.reads:
        return None
    cut = {}
    for value in captures(loop):
        dims = {dim for row, dim in rows.reads.items() if row_read(row).operands[0] == value}
        if len(dims) == 1 and not rows.uses_whole(value):
            cut[value] = dims.pop()
    known = {*rows.counted.counters, *rows.writes, *rows.sums}
    carried = tuple(p for p in range(len(loop.operands)) if p not in known)
    return TokenLoop(rows, cut, carried)
