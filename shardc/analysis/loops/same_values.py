"""Which values of a function are copies: made by the same ops of the same values.

`jax.checkpoint` makes forward values again behind barriers, and a loop over layers makes them again
from rows that another loop has stacked up. One device would give a copy the same bits; two
functions need not, as each is split and compiled by itself.
"""

import itertools
from collections import ChainMap
from collections.abc import Hashable, MutableMapping
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop, row_loop
from shardc.ir.constants import is_complex, splat_text
from shardc.ir.effects import must_run_once
from shardc.ir.tensor_types import dtype_of, num_elements
from shardc.ir.walk import block_terminator, body, defining_op, ops_of, walk
from shardc.rules.allowed_factors import BARRIER

BRANCHES = ("stablehlo.case", "stablehlo.if")
# What `reduce_precision` leaves as it is; JAX marks with it what is kept for the way back.
_FORMATS = {"float64": (11, 52), "float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}


def is_identity(op: ir.Operation) -> bool:
    """Whether an op hands on its operands, one by one."""
    if op.name == BARRIER:
        return True
    if op.name != "stablehlo.reduce_precision":
        return False
    names = ("exponent_bits", "mantissa_bits")
    bits = tuple(ir.IntegerAttr(op.attributes[name]).value for name in names)
    return _FORMATS.get(dtype_of(op.operands[0])) == bits


def _reshapes(op: ir.Operation) -> bool:
    """Whether all elements stay in their order; loops write rows that are broadcast to one more
    dim, of size 1, and read them with a reshape."""
    if op.name == "stablehlo.broadcast_in_dim":
        dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        return dims == sorted(dims) and num_elements(op.operands[0]) == num_elements(op.results[0])
    return op.name == "stablehlo.reshape"


class _Written(NamedTuple):
    """What each iteration of a loop writes to a stack: a value of its body, along which dim."""

    row: ir.Value
    dim: int
    trips: int
    depth: int


class _Given(NamedTuple):
    """What each branch of an op gives for one of its results, and what chooses among them."""

    choice: tuple[int | None, int]  # number of the operand, number of branches
    by_branch: list[ir.Value]


class SameValues:
    """The numbers of values: those of copies are equal.

    In the body of a loop that touches row after row of stacks, a value stands for what it is where
    row r is touched; in a loop inside it, where its own row is touched in that round. So a row that
    one loop reads is what another has written there, if as many loops are around it: a loop and one
    inside it touch two rows of a stack at a time. In a branch, a value stands for what it is where
    the branch is chosen: there, ops with the same choice have given what the same branch of theirs
    gives.

    Attributes:
        number: of each value of the function, and of those in the bodies of its counting loops and
            in branches.
        order: a later value has a larger one.
        written: of rows that a loop reads what another loop has written there.
        copies: number -> its values but for what is handed on, in their order.
    """

    def __init__(self, function: ir.Operation) -> None:
        self.number: dict[ir.Value, int] = {}
        self.order: dict[ir.Value, int] = {}
        self.written: dict[ir.Value, ir.Value] = {}
        self.copies: dict[int, list[ir.Value]] = {}
        self._places = itertools.count()
        self._depth = 0  # loops around what is being numbered
        self._numbers: dict[Hashable, int] = {}
        self._stacks: dict[int, _Written] = {}
        self._given: dict[ir.Value, _Given] = {}
        self._branched: dict[int, _Given] = {}  # the same, by the number of a value
        self._whole: dict[int, tuple[int, ir.Type]] = {}  # of reshaped values what they were
        for p, argument in enumerate(body(function).arguments):
            self._name(argument, ("argument", p))
        for op in ops_of(body(function)):
            self._visit(op)

    def behind(self, value: ir.Value, at: ir.Operation) -> ir.Value:
        """What a value is where `at` stands: what another loop has written, or what the branch has
        given that was chosen like one around `at`."""
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
        """The branches around `at`: by what chooses each, its number."""
        chosen = {}
        inner, outer = at, at.parent
        while outer is not None and (around := outer.operation).name != "func.func":
            if around.name in BRANCHES and (choice := self._choice(around))[0] is not None:
                number = [inner.block == region.blocks[0] for region in around.regions].index(True)
                chosen[choice] = number
            inner, outer = around, around.parent
        return chosen

    def _visit(self, op: ir.Operation) -> None:
        """Numbers the results of an op, and what is in its branches or in a counting loop."""
        self._number(op)
        if op.name in BRANCHES:
            blocks = [region.blocks[0] for region in op.regions]
            for each in (each for block in blocks for each in ops_of(block)[:-1]):
                self._visit(each)
            given = zip(*(block_terminator(block).operands for block in blocks), strict=True)
            for result, values in zip(op.results, given, strict=True):
                self._given[result] = _Given(self._choice(op), list(values))
                self._branched[self.number[result]] = self._given[result]
        elif op.name == "stablehlo.while" and (found := row_loop(op)) is not None:
            self._enter(found)
        else:
            return
        for result in op.results:  # what is inside cannot use it
            self.order[result] = next(self._places)

    def _given_here(self, number: int, at: ir.Operation) -> int:
        """The number of what a branch has given that was chosen like one around `at`."""
        chosen = self._chosen(at) if number in self._branched else {}
        while (given := self._branched.get(number)) is not None and given.choice in chosen:
            number = self.number[given.by_branch[chosen[given.choice]]]
        return number

    def _choice(self, op: ir.Operation) -> tuple[int | None, int]:
        """Ops with equal ones choose alike; an index out of bounds takes the last branch."""
        return self.number.get(op.operands[0]), len(op.regions)

    def _enter(self, found: RowLoop) -> None:
        """Numbers what is in the body of a loop."""
        loop = self.number[found.loop.results[0]]
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
        elif _reshapes(op):
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
        """What says all of an op but where it stands.

        Args:
            known: numbers of what the op uses.
            depth: of the regions around it that belong to the key of another op.
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
            # The bindings cannot read it. One that is no splat is equal to itself alone.
            return splat_text(op) or len(self._numbers)
        return tuple((name, op.attributes[name]) for name in op.attributes)

    def _intern(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
