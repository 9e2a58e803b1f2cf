"""Value numbering: finds copies, values that equal ops compute from equal values.

`jax.checkpoint` recomputes forward values behind barriers; a loop over layers recomputes them from
rows that another loop has stacked. On one device a copy has the same bits. In two functions it need
not, because each is partitioned and compiled separately.
"""

import itertools
from collections import ChainMap
from collections.abc import Hashable, MutableMapping
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop, row_loop
from shardc.ir.attributes import DIRECTION, ORIGIN, PHASE, STAGE
from shardc.ir.constants import is_complex, splat_text
from shardc.ir.effects import must_run_once
from shardc.ir.tensor_types import dtype_of, num_elements
from shardc.ir.walk import block_terminator, body, defining_op, ops_of, walk
from shardc.rules.allowed_factors import BARRIER

BRANCHES = ("stablehlo.case", "stablehlo.if")
# They say where an op belongs, not what it computes.
_PLACES = frozenset((STAGE, PHASE, DIRECTION, ORIGIN))
# Formats that `reduce_precision` leaves unchanged; JAX uses it to mark residuals.
_FORMATS = {"float64": (11, 52), "float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}


def is_identity(op: ir.Operation) -> bool:
    """Whether result i of an op is its operand i."""
    if op.name == BARRIER:
        return True
    if op.name != "stablehlo.reduce_precision":
        return False
    names = ("exponent_bits", "mantissa_bits")
    bits = tuple(ir.IntegerAttr(op.attributes[name]).value for name in names)
    return _FORMATS.get(dtype_of(op.operands[0])) == bits


def reshapes(op: ir.Operation) -> bool:
    """Whether an op keeps all elements in their order. Loops add a dim of size 1 to a row by a
    broadcast before they write it, and drop it by a reshape after they read it."""
    if op.name == "stablehlo.broadcast_in_dim":
        dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        return dims == sorted(dims) and num_elements(op.operands[0]) == num_elements(op.results[0])
    return op.name == "stablehlo.reshape"


class _Written(NamedTuple):
    """The row that each iteration of a loop writes to a stack, and the dim along which."""

    row: ir.Value
    dim: int
    trips: int
    depth: int


class _Yields(NamedTuple):
    """The value that each branch yields for one result of an op, and the choice among them."""

    choice: tuple[int | None, int]  # number of the operand, number of branches
    by_branch: list[ir.Value]


class ValueNumbering:
    """A number for each value of a function; copies have equal numbers.

    In the body of a loop over the rows of stacks, a number denotes the value in the iteration that
    touches row r; in a nested loop, in the iteration of each loop that touches its own row. Hence a
    row that one loop reads equals the row that another has written, if both are nested equally
    deep: a loop and one inside it touch two rows of a stack at a time. In a branch, a number
    denotes the value under the condition that the branch is taken: there, another op with the same
    predicate has yielded the value of its same branch.

    Attributes:
        number: of each value of the function, of the bodies of its counted loops, and of branches.
        order: position; later values have larger ones.
        written: row that a loop reads -> the value that another loop has written there.
        copies: number -> its values in order, without those that identities forward.
        loops: the loops whose bodies are numbered.
    """

    def __init__(self, function: ir.Operation) -> None:
        self.number: dict[ir.Value, int] = {}
        self.order: dict[ir.Value, int] = {}
        self.written: dict[ir.Value, ir.Value] = {}
        self.copies: dict[int, list[ir.Value]] = {}
        self.loops: dict[ir.Operation, RowLoop] = {}
        self._places = itertools.count()
        self._depth = 0  # loops around what is being numbered
        self._numbers: dict[Hashable, int] = {}
        self._stacks: dict[int, _Written] = {}
        self._given: dict[ir.Value, _Yields] = {}
        self._branched: dict[int, _Yields] = {}  # the same, by the number of a value
        self._whole: dict[int, tuple[int, ir.Type]] = {}  # of reshaped values what they were
        for p, argument in enumerate(body(function).arguments):
            self._name(argument, ("argument", p))
        for op in ops_of(body(function)):
            self._visit(op)

    def behind(self, value: ir.Value, at: ir.Operation) -> ir.Value:
        """The value that `value` equals at `at`: the row that another loop has written, or what the
        branch with the same predicate as one around `at` yields."""
        chosen = self._chosen(at)
        while True:
            given = self._given.get(value)
            if value in self.written:
                value = self.written[value]
            elif given is not None and given.choice in chosen:
                value = given.by_branch[chosen[given.choice]]
            else:
                return value

    def _chosen(self, at: ir.Operation) -> dict[tuple[int | None, int], int]:
        """The branches around `at`: choice -> number of the branch taken."""
        chosen = {}
        inner, outer = at, at.parent
        while outer is not None and (around := outer.operation).name != "func.func":
            if around.name in BRANCHES and (choice := self._choice(around))[0] is not None:
                number = [inner.block == region.blocks[0] for region in around.regions].index(True)
                chosen[choice] = number
            inner, outer = around, around.parent
        return chosen

    def _visit(self, op: ir.Operation) -> None:
        """Numbers the results of an op, and the values in its branches or in a counted loop."""
        self._number(op)
        if op.name in BRANCHES:
            blocks = [region.blocks[0] for region in op.regions]
            for each in (each for block in blocks for each in ops_of(block)[:-1]):
                self._visit(each)
            given = zip(*(block_terminator(block).operands for block in blocks), strict=True)
            for result, values in zip(op.results, given, strict=True):
                self._given[result] = _Yields(self._choice(op), list(values))
                self._branched[self.number[result]] = self._given[result]
        elif op.name == "stablehlo.while" and (found := row_loop(op)) is not None:
            self._enter(found)
        else:
            return
        for result in op.results:  # values inside cannot use it
            self.order[result] = next(self._places)

    def _given_here(self, number: int, at: ir.Operation) -> int:
        """The number of the yield of the branch with the same predicate as one around `at`."""
        chosen = self._chosen(at) if number in self._branched else {}
        while (given := self._branched.get(number)) is not None and given.choice in chosen:
            number = self.number[given.by_branch[chosen[given.choice]]]
        return number

    def _choice(self, op: ir.Operation) -> tuple[int | None, int]:
        """Ops with equal choices take the same branch; an index out of bounds takes the last."""
        return self.number.get(op.operands[0]), len(op.regions)

    def _enter(self, found: RowLoop) -> None:
        """Numbers the values in the body of a loop."""
        loop = self.number[found.loop.results[0]]
        self.loops[found.loop] = found
        self._depth += 1
        for p, argument in enumerate(found.body.arguments):
            self._name(argument, ("carried", self._depth, loop, p))
        for op in ops_of(found.body):
            if len(op.results) == 1 and op.results[0] in found.reads:
                self._read(op.results[0], op.operands[0], found)
            else:
                self._visit(op)
        for p, dim in found.writes.items():
            update = defining_op(block_terminator(found.body).operands[p])
            assert update is not None, "a carried stack is updated by an op"
            stack = self.number[found.loop.results[p]]
            row = update.operands[1]
            self._stacks[stack] = _Written(row, dim, found.counted.trips, self._depth)
        self._depth -= 1

    def _read(self, row: ir.Value, stack: ir.Value, found: RowLoop) -> None:
        dim, number = found.reads[row], self._given_here(self.number[stack], found.loop)
        source = self._stacks.get(number)
        wanted = dim, found.counted.trips, self._depth
        if source is None or (source.dim, source.trips, source.depth) != wanted:
            self._name(row, ("row", self._depth, number, dim))
            return
        self.written[row] = source.row
        self._set(row, self.number[source.row])

    def _number(self, op: ir.Operation) -> None:
        if is_identity(op):
            for operand, result in zip(op.operands, op.results, strict=True):
                self.number[result] = self.number[operand]
                self.order[result] = next(self._places)
        elif reshapes(op):
            number, type_ = self.number[op.operands[0]], op.results[0].type
            whole = self._whole.setdefault(number, (number, op.operands[0].type))
            if type_ == whole[1]:
                self._set(op.results[0], whole[0])
            else:
                self._name(op.results[0], ("reshaped", whole[0], type_))
                self._whole[self.number[op.results[0]]] = whole
        elif any(must_run_once(each) for each in (op, *walk(op))):
            for result in op.results:
                self._name(result, ("once", len(self.number)))
        else:
            key = self._key(op, self.number, 0)
            for n, result in enumerate(op.results):
                self._name(result, ("result", n, *key))

    def _name(self, value: ir.Value, key: Hashable) -> None:
        self._set(value, self._numbers.setdefault(key, len(self._numbers)))

    def _set(self, value: ir.Value, number: int) -> None:
        self.number[value], self.order[value] = number, next(self._places)
        self.copies.setdefault(number, []).append(value)

    def _key(
        self, op: ir.Operation, known: MutableMapping[ir.Value, int], depth: int
    ) -> tuple[Hashable, ...]:
        """The structural key of an op: everything but its position.

        Args:
            known: numbers of the values the op uses.
            depth: number of enclosing regions that belong to the key of another op.
        """
        inner = ChainMap[ir.Value, int]({}, known) if len(op.regions) > 0 else known
        regions = []
        for region in op.regions:
            for block in region.blocks:
                for p, argument in enumerate(block.arguments):
                    inner[argument] = self._intern(("region", depth, p))
                for each in ops_of(block):
                    key = self._key(each, inner, depth + 1)
                    regions.append(self._intern(key))
                    for n, result in enumerate(each.results):
                        inner[result] = self._intern(("result", n, *key))
        types = tuple(result.type for result in op.results)
        used = tuple(inner[v] for v in op.operands)
        return op.name, self._attributes(op), used, types, *regions

    def _attributes(self, op: ir.Operation) -> Hashable:
        if op.name == "stablehlo.constant" and is_complex(op.results[0]):
            # The bindings cannot read its value: one that is not a splat equals only itself.
            return splat_text(op) or len(self._numbers)
        return tuple((n, op.attributes[n]) for n in op.attributes if n not in _PLACES)

    def _intern(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
