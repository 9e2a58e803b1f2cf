"""Strip mining of loops over blocks of the batch: each microbatch runs some of the iterations.

Examples are gradient accumulation over parts of a batch, and a loss computed block by block. An
iteration may do anything with its block, as long as iterations meet only in sums.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import INVARIANT, Cut, Kind, State
from shardc.analysis.loops.row_loop import before_barriers, block_dim, used_alone
from shardc.analysis.program.counted_loop import CountedLoop, counted_loop
from shardc.ir.constants import is_zero
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, is_inside, ops_of


@dataclass(frozen=True)
class StripMining:
    """A counted loop whose iterations are divided among the microbatches.

    Attributes:
        counted: how the whole loop counts.
        forwards: iteration k works on block k of the batch; else on block trips - 1 - k.
        reads: position in the body of a `dynamic_slice` that reads the block -> its dim.
        writes: position of a carried value -> the dim of which an iteration writes its block.
    """

    counted: CountedLoop
    forwards: bool
    reads: Mapping[int, int]
    writes: Mapping[int, int]


@dataclass(frozen=True)
class StripMinedLoop:
    """A loop that can be strip-mined, and the state of each value that it carries."""

    mining: StripMining
    carries: list[State]


def strip_mine(
    loop: ir.Operation, states: Sequence[State], captured: Mapping[ir.Value, State]
) -> StripMinedLoop | None:
    """How to strip-mine a `stablehlo.while`; None if it cannot be.

    Each carried value is invariant, a counter, an accumulator that starts at zero, or an array that
    every iteration writes one block of. Parts of the batch are read block by block.

    Args:
        states: of the operands, all of sweep 0.
        captured: states of the values from outside that the regions use.
    """
    whole = counted_loop(loop)
    if whole is None or whole.trips < 2:
        return None
    counted = whole.with_counters({p for p, v in enumerate(loop.operands) if _is_signless(v)})
    if counted is None:
        return None
    for forwards in (True, False):
        blocks = _Blocks(loop, counted, forwards)
        carries = blocks.carries(states)
        if carries is None:
            continue
        seen = {**captured, **dict(zip(blocks.body.arguments, carries, strict=True))}
        if (reads := blocks.reads(seen)) is not None:
            return StripMinedLoop(StripMining(counted, forwards, reads, blocks.writes), carries)
    return None


class _Blocks:
    """How the iterations access the blocks of the batch, for one of the two orders."""

    def __init__(self, loop: ir.Operation, counted: CountedLoop, forwards: bool) -> None:
        self.loop, self.counters = loop, counted.counters
        self.body = loop.regions[1].blocks[0]
        self.wanted, self.values = counted.rows(forwards), counted.values(self.body)
        self.writes: dict[int, int] = {}

    def carries(self, states: Sequence[State]) -> list[State] | None:
        """State of each carried value; None if one has no valid state. Fills `writes`."""
        found = [self._carry(p, state) for p, state in enumerate(states)]
        agreed = [state for state in found if state is not None]
        return agreed if len(agreed) == len(found) else None

    def _carry(self, position: int, state: State) -> State | None:
        argument = self.body.arguments[position]
        value = block_terminator(self.body).operands[position]
        if before_barriers(value) == argument:
            return None if state.is_partial else state
        if position in self.counters:  # its final count differs per microbatch
            used = next(iter(self.loop.results[position].uses), None) is not None
            return None if used or state != INVARIANT else state
        op = defining_op(value)
        if op is None or op.block != self.body:
            return None
        if op.name == "stablehlo.add" and argument in list(op.operands):
            zero = state == INVARIANT and is_zero(self.loop.operands[position])
            alone = used_alone(argument, value)
            return State(Kind.PARTIAL) if alone and (zero or state.is_partial) else None
        if op.name != "stablehlo.dynamic_update_slice" or op.operands[0] != argument:
            return None
        whole, part, *starts = op.operands
        dim = block_dim(shape_of(whole), starts, shape_of(part), self.wanted, self.values)
        if dim is None or len(list(value.uses)) != 1 or whole == part:
            return None
        written = State(Kind.VARYING, 0, Cut(dim))
        self.writes[position] = dim
        return written if state in (INVARIANT, written) else None

    def reads(self, states: Mapping[ir.Value, State]) -> dict[int, int] | None:
        """`StripMining.reads`; None if a part of the batch is used in any other way."""
        found: dict[int, int] = {}
        ops = ops_of(self.body)
        position = {op.results[0]: i for i, op in enumerate(ops) if len(op.results)}
        for value, state in states.items():
            if state.is_partial and value not in self.body.arguments:
                return None
            if not state.varies:
                continue
            for op, operand in self._uses(value):
                dim = None
                if op.name == "stablehlo.dynamic_slice" and op.block == self.body and operand == 0:
                    sizes, starts = shape_of(op.results[0]), list(op.operands)[1:]
                    dim = block_dim(shape_of(value), starts, sizes, self.wanted, self.values)
                if dim is None or state.cut != Cut(dim):
                    return None
                found[position[op.results[0]]] = dim
        return found

    def _uses(self, value: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
        """The uses of a value inside the loop, except those that only carry it on."""
        ends = block_terminator(self.body)
        for use in value.uses:
            op, operand = use.owner.operation, use.operand_number
            if not is_inside(op, self.loop):
                continue
            if op == ends and self.body.arguments[operand] == value:
                continue
            update = op.name == "stablehlo.dynamic_update_slice" and operand == 0
            if update and any(ends.operands[p] == op.results[0] for p in self.writes):
                continue
            yield op, operand


def _is_signless(value: ir.Value) -> bool:
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.IntegerType) and element.is_signless
