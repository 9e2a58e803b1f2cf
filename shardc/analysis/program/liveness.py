"""Live ranges of the values of a function, loops and branches included."""

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import FUSED, ON_THE_FLY
from shardc.ir.attributes import function_kind
from shardc.ir.walk import CONTROL_FLOW, body, ops
from shardc.plan.function_kind import FunctionKind
from shardc.rules.allowed_factors import BARRIER

FUSED_INTO = FUSED | {"stablehlo.reduce"}  # the users of a value that an update never stores


class Liveness:
    """The last use of each value of a function, as a position among its `planned_ops`.

    The result of a free op, or of one that works in place, keeps its operand live. A value from
    outside a loop is live until the loop ends. In an update, XLA fuses the arithmetic on a
    parameter: a value whose only user is an elementwise op or a reduction is never stored.
    """

    def __init__(self, function: ir.Operation) -> None:
        self._ops: list[tuple[ir.Operation, tuple[int, ...]]] = []  # with enclosing ops
        self._ends: dict[int, int] = {}  # position of a control-flow op -> last position inside
        self._depth: dict[ir.Value, int] = {}
        self._returned: list[tuple[ir.Value, tuple[int, ...]]] = []
        self._last: dict[ir.Value, int] = {}
        self._until: dict[int, int] = {}  # position of an op -> end of its operands' live ranges
        self._depth.update(dict.fromkeys(body(function).arguments, 0))
        self._updates = function_kind(function) is FunctionKind.UPDATE
        for op in ops(function):
            self._enter(op, ())
        for value, around in self._returned:
            self._use(value, self._ends[around[-1]], around)
        for time in reversed(range(len(self._ops))):
            op, around = self._ops[time]
            if op.name in ON_THE_FLY or op.name == BARRIER or is_in_place(op) or self.is_fused(op):
                last = [self.last_use(result, time) for result in op.results]
                self._until[time] = max(last, default=time)
            for operand in op.operands:
                self._use(operand, self._until.get(time, time), around)

    def is_fused(self, op: ir.Operation) -> bool:
        """Whether XLA fuses an op of an update into its only user."""
        if not self._updates or op.name not in FUSED or len(op.results) != 1:
            return False
        users = [use.owner.operation for use in op.results[0].uses]
        return len(users) == 1 and users[0].name in FUSED_INTO

    def last_use(self, value: ir.Value, made: int) -> int:
        """Position of the last op that needs `value`; `made` if there is none."""
        return self._last.get(value, made)

    def needed(self, value: ir.Value, time: int) -> tuple[int, int]:
        """Live range, both ends included, of a copy of `value` for the op at `time`.

        A value from outside a loop is copied before the loop, and the copy is live until it ends.
        """
        around, depth = self._ops[time][1], self._depth[value]
        until = self._until.get(time, time)
        if depth < len(around):
            return around[depth], max(until, self._ends[around[depth]])
        return time, until

    def end(self, time: int) -> int:
        """Position of the last op inside the op at `time`; `time` itself without regions."""
        return self._ends.get(time, time)

    def _enter(self, op: ir.Operation, around: tuple[int, ...]) -> None:
        time = len(self._ops)
        self._ops.append((op, around))
        self._depth.update(dict.fromkeys(op.results, len(around)))
        if op.name not in CONTROL_FLOW:
            return
        inside = (*around, time)
        for region in op.regions:
            block = region.blocks[0]
            self._depth.update(dict.fromkeys(block.arguments, len(inside)))
            *inner, end = (each.operation for each in block.operations)
            for each in inner:
                self._enter(each, inside)
            self._returned += [(value, inside) for value in end.operands]
        self._ends[time] = len(self._ops) - 1

    def _use(self, value: ir.Value, time: int, around: tuple[int, ...]) -> None:
        depth = self._depth[value]
        if depth < len(around):
            time = max(time, self._ends[around[depth]])
        self._last[value] = max(self._last.get(value, 0), time)


def is_in_place(op: ir.Operation) -> bool:
    """Whether XLA updates a part of a loop-carried value in place."""
    if op.name != "stablehlo.dynamic_update_slice":
        return False
    block = op.operands[0].owner
    return isinstance(block, ir.Block) and block.owner.operation.name == "stablehlo.while"
