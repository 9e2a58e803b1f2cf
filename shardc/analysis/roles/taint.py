"""Which values of a step are computed from its state alone, and from which parameters."""

from collections.abc import Collection

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import next_states
from shardc.ir.attributes import VALUE, arg_attrs, result_attrs
from shardc.ir.walk import (
    CONTROL_FLOW,
    block_terminator,
    body,
    defining_op,
    functions,
    planned_ops,
    terminator,
)
from shardc.plan.value_id import is_argument
from shardc.solver.interrupt import poll_optional

_NONE: frozenset[str] = frozenset()


class Taint:
    """For each value the parameters that it depends on; None if it depends on the batch.

    Args:
        module: the stage functions of a step, in the order in which they run.
        batch: ids of the arguments that hold the batch; empty: all arguments that are not state.
    """

    def __init__(self, module: ir.Operation, batch: Collection[str]) -> None:
        state = set(next_states(module).values())
        self._of: dict[ir.Value, frozenset[str] | None] = {}
        known: dict[str, frozenset[str] | None] = {}
        for function in functions(module):
            for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True):
                name = str(ir.StringAttr(attrs[VALUE]).value)
                given = name not in batch if batch and is_argument(name) else name in state
                own = frozenset((name,)) if given else None
                self._of[value] = known.get(name, own)
            for op in planned_ops(function):
                poll_optional()
                self._enter(op)
            for result, attrs in zip(
                terminator(function).operands, result_attrs(function), strict=True
            ):
                known[str(ir.StringAttr(attrs[VALUE]).value)] = self._of[result]

    def of(self, value: ir.Value) -> frozenset[str] | None:
        """Ids of the arguments that a value depends on; None if it depends on the batch."""
        return self._of.get(value)

    def weight_of(self, op: ir.Operation) -> int | None:
        """The operand of a product that depends on state alone, if the other does not."""
        left, right = (self.of(operand) for operand in list(op.operands)[:2])
        if (left is None) == (right is None):
            return None
        return int(left is None)

    def _enter(self, op: ir.Operation) -> None:
        if op.name == "stablehlo.while":
            # Loop-invariant carries keep their taint; all others count as activations.
            block = op.regions[1].blocks[0]
            for position, returned in enumerate(block_terminator(block).operands):
                same = returned == block.arguments[position]
                found = self._of[op.operands[position]] if same else None
                self._of[op.results[position]] = found
                for region in op.regions:
                    self._of[region.blocks[0].arguments[position]] = found
            return
        if op.name in CONTROL_FLOW:
            self._of.update(dict.fromkeys(op.results))
            return
        for region in op.regions:
            for block in region.blocks:
                self._of.update(dict.fromkeys(block.arguments))
        found = _NONE
        counted = _is_counter(op)
        for operand in op.operands:
            own = self._of.get(operand)
            if own is None and not (counted and operand != op.operands[0]):
                self._of.update(dict.fromkeys(op.results))
                return
            found = found | (own or _NONE)
        self._of.update(dict.fromkeys(op.results, found))


def _is_counter(op: ir.Operation) -> bool:
    """Whether all operands but the first are indices only: rows of stacked layers, which come from
    outside the block of the op."""
    if op.name != "stablehlo.dynamic_slice":
        return False
    made = defining_op(op.operands[0])
    return made is None or made.parent != op.parent
