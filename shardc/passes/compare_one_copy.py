"""Make comparisons use the same copy of a rematerialized value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.carried_extremes import (
    carried_invariants,
    carried_sources,
    invariant_ops,
    may_round,
)
from shardc.analysis.loops.value_numbering import ValueNumbering, is_identity
from shardc.analysis.program.op_classes import chooses
from shardc.analysis.stages.compared_values import MEETING
from shardc.ir.clone import clone_op, inputs
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import is_float
from shardc.ir.walk import CONTROL_FLOW, body, defining_op, functions, ops, ops_of, walk
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rules.allowed_factors import BARRIER

MOST_OPS = 100  # between a selected value and the value it is selected from


@dataclass(frozen=True)
class CompareOneCopy(Pass):
    """Recomputes maxima and other selected elements from the copy they are compared with.

    A policy of `jax.checkpoint` may save the maximum of a value but not the value. The gradient of
    the maximum then asks which elements of a recomputed copy equal it. On one device the copy has
    the same bits. If the backward is another function, it may not, and no element equals the
    maximum. This pass takes the maximum of the copy instead. It does the same for elements selected
    in other ways (sorted, clamped, moved), for differences and quotients, in the bodies of loops
    that read rows other loops have stacked, and in branches with the same predicate.

    A value that a loop carries (the largest element so far) is not recomputed. If it was selected
    from floats that exist twice, both users take the first copy; floats that the loop recomputes in
    every iteration are hoisted out of it. A second run changes nothing.

        %m = max %x                                  %m = max %x
        %x' = (ops of %x) of barriers                %x' = (ops of %x) of barriers
        compare EQ %x', %m             becomes       %m' = max %x'
                                                     compare EQ %x', %m'
    """

    name = "shardc-compare-one-copy"
    never_refuses = "a value that cannot be recomputed from the copy is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            nested = [op for op in walk(function) if op.name in CONTROL_FLOW]
            loops = [op for op in nested if op.name == "stablehlo.while"]
            for loop in reversed(loops):  # inner ones first
                _hoist(loop)
            split = [op for op in ops(function) if op.name in CONTROL_FLOW]
            if len(split) < 2 and not any(op.name == BARRIER for op in ops(function)):
                continue  # no copies: CSE has merged equal ops
            meeting = list(_meeting(body(function)))
            if meeting:
                copies = ValueNumbering(function)
                _use_first(function, copies)
                for op in meeting:
                    _meet(op, copies)
                drop_unused(function)


def _hoist(loop: ir.Operation) -> None:
    """Hoists the floats that a loop recomputes in each iteration and carries elements of."""
    needed = set(carried_invariants(loop))
    if needed:
        invariant = invariant_ops(loop.regions[1].blocks[0])
        for op in reversed(invariant):
            if op in needed:
                needed.update(maker for value in inputs(op) if (maker := defining_op(value)))
        for op in invariant:
            if op in needed:
                op.move_before(loop)


def _use_first(function: ir.Operation, values: ValueNumbering) -> None:
    """Replaces copies of floats that loops carry elements of by the first one."""
    copies: dict[ir.Operation, list[list[ir.Value]]] = {}
    for op in filter(may_round, ops(function)):
        equal = [values.copies[values.number[value]] for value in op.results]
        if any(len(each) > 1 and each[0].owner == op for each in equal):
            copies[op] = equal
    for op in carried_sources(function, copies):
        for first, *later in copies[op]:
            for copy in later if first.owner == op else ():
                copy.replace_all_uses_with(first)


def _meeting(block: ir.Block) -> Iterator[ir.Operation]:
    """The ops of a block, and of loops and branches in it, where floats meet."""
    for op in ops_of(block):
        if op.name in MEETING and is_float(op.operands[0]):
            yield op
        for region in op.regions if op.name in CONTROL_FLOW else ():
            yield from _meeting(region.blocks[0])


def _meet(op: ir.Operation, copies: ValueNumbering) -> None:
    """Recomputes each operand of an op that compares two values from the other's copy, if it was
    selected from one."""
    for mine, other in ((0, 1), (1, 0)):
        made = _Chosen(op, op.operands[other], copies).again(op.operands[mine])
        if made is not None:
            op.operands[mine] = made


class _Chosen:
    """Recomputes selected values from the copies that another value is computed from.

    Args:
        at: the op that compares them; new ops go before it.
        behind: the other value.
    """

    def __init__(self, at: ir.Operation, behind: ir.Value, copies: ValueNumbering) -> None:
        self._at, self._behind, self._copies = at, behind, copies
        self._left = MOST_OPS
        self._made: dict[ir.Value, ir.Value | None] = {}

    def again(self, value: ir.Value) -> ir.Value | None:
        """The value recomputed from the copies; None if it depends on none of them."""
        if value not in self._made:
            self._left -= 1
            self._made[value] = self._again(value) if self._left >= 0 else None
        return self._made[value]

    def _again(self, value: ir.Value) -> ir.Value | None:
        source = self._copies.behind(value, self._at)
        op = defining_op(source)
        if op is None:
            return None
        position = ir.OpResult(source).result_number
        if is_identity(op):
            return self.again(op.operands[position])
        if not chooses(op):
            return self._copy(source)
        used = inputs(op)
        mapping = {v: new for v in used if (new := self.again(v)) is not None}
        if not mapping:
            return None
        for v in used:
            there = mapping.get(v) or self._here(v) or self._anew(v)
            if there is None:
                return None
            mapping[v] = there
        with ir.InsertionPoint(self._at), op.location:
            return clone_op(op, mapping).results[position]

    def _copy(self, value: ir.Value) -> ir.Value | None:
        """The last copy behind the value that the other one is computed from."""
        order, number = self._copies.order, self._copies.number.get(value)
        end = order.get(self._behind, -1)
        equal = [] if number is None else self._copies.copies[number]
        later = [v for v in equal if order[value] < order[v] <= end and _is_rounded(v)]
        return self._last_of(later) if later else None

    def _last_of(self, copies: Sequence[ir.Value]) -> ir.Value | None:
        """The last of `copies` that the other value is computed from."""
        order = self._copies.order
        first = min(order[copy] for copy in copies)  # no value before it depends on any
        todo, seen = [self._behind], {self._behind}
        while todo:
            value = todo.pop()
            op = defining_op(value)
            if op is None:
                continue
            used = inputs(op)
            if is_identity(op):
                used = [op.operands[ir.OpResult(value).result_number]]
            new = [v for v in used if v not in seen and order.get(v, -1) >= first]
            seen.update(new)
            todo += new
        return max(seen.intersection(copies), key=order.__getitem__, default=None)

    def _here(self, value: ir.Value) -> ir.Value | None:
        """The value, or an equal one, that is in scope at the comparison."""
        number = self._copies.number.get(value)
        equal = [] if number is None else self._copies.copies[number]
        return next((v for v in (value, *equal) if self._in_scope(v)), None)

    def _anew(self, value: ir.Value) -> ir.Value | None:
        """An iota of another branch, cloned before the comparison."""
        op = defining_op(value)
        if op is None or op.name != "stablehlo.iota":
            return None
        with ir.InsertionPoint(self._at), op.location:
            return clone_op(op, {}).results[0]

    def _in_scope(self, value: ir.Value) -> bool:
        """Whether a value is in scope at the comparison."""
        if value not in self._copies.order:
            return False
        block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        place = self._copies.order.get(self._at.results[0], 0)
        return self._copies.order[value] < place and _is_around(block, self._at)


def _is_around(block: ir.Block, op: ir.Operation) -> bool:
    """Whether an op is in a block, or in a region of an op there."""
    while op.block != block and op.parent is not None and op.parent.name != "func.func":
        op = op.parent.operation
    return op.block == block


def _is_rounded(value: ir.Value) -> bool:
    """Whether the op that defines a value may round."""
    op = defining_op(value)
    return op is not None and not is_identity(op) and not chooses(op)
