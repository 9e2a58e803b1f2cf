"""Loops over products that no stage boundary cuts, in words."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import row_loop
from shardc.analysis.program.flops import is_heavy
from shardc.ir.attributes import ORIGIN
from shardc.ir.walk import where


def whole_loops(ops: Sequence[ir.Operation], order: Sequence[int]) -> str:
    """Which loops count as one layer each, and why; "" if none does.

    Args:
        ops: of a split @main.
        order: positions of those that stages share out.
    """
    cut = any(ORIGIN in op.attributes for op in ops)  # shardc-cut-loops has met the program
    found = []
    for op in (ops[i] for i in order):
        if op.name == "stablehlo.while" and is_heavy(op):
            why = _why_whole(op, inside=cut and ORIGIN not in op.attributes)
            if why:
                found.append((where(op), why))
    if not found:
        return ""
    (place, why), others = found[0], len(found) - 1
    also = f", and so do{'es' * (others == 1)} {others} other{'s' * (others > 1)}" if others else ""
    return f"the loop at {place} counts as one, because {why}{also}"


def _why_whole(loop: ir.Operation, inside: bool) -> str:
    """Why the iterations of a loop are not layers; "" if they are.

    Args:
        inside: whether it stood inside another loop when the program's loops could be cut.
    """
    if inside:
        return "in the program it stands inside another loop"
    found = row_loop(loop)
    if found is None:
        return "its number of iterations is not constant"
    return "its iterations do not depend on each other" if found.independent else ""
