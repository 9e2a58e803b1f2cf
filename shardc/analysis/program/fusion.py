"""Memory traffic of the ops of a function once XLA has fused them into kernels.

Elementwise ops, reductions over the innermost dims, and ops that only reinterpret or move elements
fuse with their producers and users, unless a path between them runs through a product or another op
that does not fuse. A kernel reads each outside value once, writes the values that are used outside,
and launches once. Values computed from constants alone cost nothing: their users rematerialize
them.

Source: the fusion passes of XLA's GPU backend (instruction fusion, multi-output fusion, and the
normalization fusions of its Triton emitter), seen as one rule.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.liveness import is_in_place
from shardc.analysis.program.op_classes import FUSED, ON_THE_FLY
from shardc.ir.clone import inputs
from shardc.ir.constants import MADE_OF_NOTHING, splat_text
from shardc.ir.tensor_types import num_bytes as bytes_of
from shardc.ir.tensor_types import num_elements, shape_of
from shardc.ir.walk import CONTROL_FLOW, RETURN, body, defining_op, ops_of
from shardc.rules.allowed_factors import BARRIER

# Transparent ops: their users read their operands instead.
THROUGH = (ON_THE_FLY - {"stablehlo.constant", "stablehlo.iota"}) | {"stablehlo.dynamic_slice"}
MOVED = frozenset(("stablehlo.pad", "stablehlo.concatenate", "stablehlo.reverse"))
CALLS_ALONE = frozenset(("stablehlo.tuple", "stablehlo.get_tuple_element", BARRIER))
MOST_OPS = 8  # between a value that is computed from constants alone, and these


class Traffic(NamedTuple):
    """Bytes that an op moves and kernels that it launches; a kernel's launch counts at one op."""

    num_bytes: int
    launches: int


NOTHING = Traffic(0, 0)


def fused_traffic(function: ir.Operation) -> list[Traffic]:
    """Traffic of each of the function's `planned_ops`, on whole values, for one call of it."""
    found: list[Traffic] = []
    _Block(ops_of(body(function)), found, {}).run()
    return found


def is_fused(op: ir.Operation) -> bool:
    """Whether an op fuses with its neighbours, so that its operands need not be written to memory
    first."""
    return op.name in THROUGH or _is_nothing(op, {}) or _fuses(op)


class _Block:
    """The kernels of one block; nested blocks are visited recursively.

    Args:
        found: of the ops before the block; gets those of its own.
        heights: of the values before it, see `_height`; gets those of its own.
    """

    def __init__(
        self, ops: list[ir.Operation], found: list[Traffic], heights: dict[ir.Value, float]
    ) -> None:
        self.ops, self.found, self.heights = ops, found, heights
        self.at: dict[ir.Operation, int] = {}
        self.level: dict[ir.Value, int] = {}  # most unfused ops on any path to a value
        self.kernel: dict[ir.Operation, int] = {}
        self.joined: list[int] = []
        self.members: dict[int, list[ir.Operation]] = {}

    def run(self) -> None:
        for op in self.ops:
            if op.name == RETURN or op.name == "func.return":
                continue
            self.at[op] = len(self.found)
            self.found.append(NOTHING)
            self._enter(op)
            for region in op.regions if op.name in CONTROL_FLOW else ():
                _Block(ops_of(region.blocks[0]), self.found, self.heights).run()
        for op in self.ops:
            if op in self.kernel:
                self.members.setdefault(self._root(self.kernel[op]), []).append(op)
        self._price_alone()
        for members in self.members.values():
            self._price(members)

    # ---- kernels ----

    def _enter(self, op: ir.Operation) -> None:
        level = max((self.level.get(operand, 0) for operand in op.operands), default=0)
        results = list(op.results)
        if results:
            self.heights.update(dict.fromkeys(results, _height(results[0], self.heights)))
        if not (op.name in THROUGH or _is_nothing(op, self.heights)):
            if _fuses(op):
                self._join(op, level)
                level += not _goes_on(op)
            else:
                level += op.name not in CALLS_ALONE
        self.level.update(dict.fromkeys(results, level))

    def _join(self, op: ir.Operation, level: int) -> None:
        self.kernel[op] = len(self.joined)
        self.joined.append(len(self.joined))
        for operand in op.operands:
            maker = defining_op(self._source(operand))
            same = maker in self.kernel and self.level[maker.results[0]] == level
            same = same and maker is not None and _goes_on(maker)
            if maker is not None and same and not self._is_made_of_nothing(operand):
                self.joined[self._root(self.kernel[op])] = self._root(self.kernel[maker])

    def _root(self, kernel: int) -> int:
        while self.joined[kernel] != kernel:
            self.joined[kernel] = kernel = self.joined[self.joined[kernel]]
        return kernel

    def _kernel_of(self, op: ir.Operation) -> int | None:
        return self._root(self.kernel[op]) if op in self.kernel else None

    def _source(self, value: ir.Value) -> ir.Value:
        """The value that a use of `value` in this block reads from memory.

        A cast outside of a loop is not made again by those who read it inside.
        """
        while (maker := defining_op(value)) is not None and maker.name in THROUGH:
            if maker.name == "stablehlo.convert" and maker not in self.at:
                break
            value = maker.operands[0]
        return value

    def _is_made_of_nothing(self, value: ir.Value) -> bool:
        return _height(value, self.heights) <= MOST_OPS

    def _runs_alone(self, op: ir.Operation) -> bool:
        return not (
            op.name in THROUGH
            or _is_nothing(op, self.heights)
            or op.name in CONTROL_FLOW
            or op.name in CALLS_ALONE
        )

    # ---- prices ----

    def _price_alone(self) -> None:
        """Ops outside fused kernels, and casts of their operands and of what their regions capture,
        which are kernels of one op."""
        for op in self.ops:
            if op not in self.kernel and op in self.at and self._runs_alone(op):
                cost = op_cost(op)
                self.found[self.at[op]] = Traffic(cost.bytes_read + cost.bytes_written, 1)
            if op in self.kernel or op.name in THROUGH:
                continue
            for operand in inputs(op):
                maker, source = defining_op(operand), self._source(operand)
                while maker is not None and maker.name in THROUGH - {"stablehlo.convert"}:
                    maker = defining_op(maker.operands[0])
                cast = maker is not None and maker.name == "stablehlo.convert" and maker in self.at
                kept = defining_op(source) not in self.kernel and not self._is_made_of_nothing(
                    operand
                )
                if cast and kept and maker is not None:
                    read = _read_bytes(maker.operands[0], source)
                    written = bytes_of(maker.results[0])
                    self.found[self.at[maker]] = Traffic(read + written, 1)

    def _price(self, members: list[ir.Operation]) -> None:
        """One kernel: a value counts at its first reader in it, the launch at its last op."""
        own = self._kernel_of(members[0])
        read: dict[ir.Value, int] = {}
        starts = False
        for op in members:
            num_bytes = 0
            skipped = {0} if op.name == "stablehlo.dynamic_update_slice" else set()
            for position, operand in enumerate(op.operands):
                source = self._source(operand)
                maker = defining_op(source)
                inside = maker is not None and self._kernel_of(maker) == own
                if inside or position in skipped or self._is_made_of_nothing(operand):
                    continue
                wanted = _read_bytes(operand, source)
                num_bytes += max(wanted - read.get(source, 0), 0)
                read[source] = max(wanted, read.get(source, 0))
            for result in op.results:
                num_bytes += self._written(op, result, own)
            starts = starts or any(shape_of(result) for result in op.results)
            self.found[self.at[op]] = Traffic(num_bytes, 0)
        if starts and any(self.found[self.at[op]].num_bytes for op in members):
            last = self.at[members[-1]]
            self.found[last] = Traffic(self.found[last].num_bytes, 1)

    def _written(self, op: ir.Operation, result: ir.Value, own: int | None) -> int:
        """Bytes of a result that the kernel writes, in the type in which users read it."""
        if is_in_place(op):
            return bytes_of(op.operands[1])
        most, waiting = 0, [result]
        while waiting:
            value = waiting.pop()
            for use in value.uses:
                user = use.owner.operation
                if user.name in THROUGH and user.results:
                    waiting.append(user.results[0])
                elif user not in self.kernel or self._kernel_of(user) != own:
                    most = max(most, min(bytes_of(value), _as_stored(value, result)))
        return most


def _as_stored(value: ir.Value, made: ir.Value) -> int:
    """Bytes of the whole result `made` in the element type of `value`, a part or cast of it."""
    return num_elements(made) * (bytes_of(value) // max(num_elements(value), 1))


def _read_bytes(operand: ir.Value, source: ir.Value) -> int:
    """Bytes of `source` that a use of `operand` reads: a slice reads a part, a broadcast all."""
    elements = min(num_elements(operand), num_elements(source))
    return elements * (bytes_of(source) // max(num_elements(source), 1))


def _height(value: ir.Value, known: Mapping[ir.Value, float], most: int = MOST_OPS) -> float:
    """The ops on the longest path to a value that is computed from constants and iotas alone, as
    masks are; inf for others, and above `most`.

    Args:
        known: of values before it.
    """
    if value in known:
        return known[value]
    maker = defining_op(value)
    if maker is None or most == 0:
        return math.inf
    if maker.name in MADE_OF_NOTHING:
        alike = maker.name == "stablehlo.iota" or num_elements(value) <= 1
        return 1.0 if alike or splat_text(maker) is not None else math.inf
    if maker.name not in THROUGH and maker.name not in FUSED:
        return math.inf
    return 1.0 + max((_height(each, known, most - 1) for each in maker.operands), default=0.0)


def _is_nothing(op: ir.Operation, known: Mapping[ir.Value, float]) -> bool:
    return op.name in MADE_OF_NOTHING or (
        op.name in FUSED and len(op.results) == 1 and _height(op.results[0], known) <= MOST_OPS
    )


def _fuses(op: ir.Operation) -> bool:
    if op.name in MOVED:
        return True
    return (
        (op.name in FUSED and len(op.results) == 1)
        or op.name == "stablehlo.reduce"
        or is_in_place(op)
    )


def _goes_on(op: ir.Operation) -> bool:
    """Whether users may fuse with the op: not after a reduction over outer dims."""
    if op.name == "stablehlo.dynamic_update_slice":
        return False
    if op.name != "stablehlo.reduce":
        return True
    dims = sorted(int(d) for d in ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    rank = len(shape_of(op.operands[0]))
    return dims == list(range(rank - len(dims), rank))
