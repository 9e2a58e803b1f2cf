"""Loops over pieces of the batch whose body could run once, on all pieces at once."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import INVARIANT, Cut, Kind, State
from shardc.analysis.batch.control_flow import RegionFlow, Rules, transfer
from shardc.analysis.batch.strip_mining import StripMining
from shardc.analysis.loops.row_loop import block_dim
from shardc.analysis.program.op_classes import ADDITIONS, IDENTITIES
from shardc.ir.attributes import SHARDING
from shardc.ir.clone import captures, inputs
from shardc.ir.constants import is_zero
from shardc.ir.effects import must_run_once
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, ops_of, walk
from shardc.rules.partial_sums import element_type
from shardc.rules.reducers import reducer

PARTIAL = State(Kind.PARTIAL)


@dataclass
class JoinedPieces:
    """The body of a strip-mined loop, seen as one run on the rows of all pieces.

    Attributes:
        loop: the `stablehlo.while`.
        mining: how its iterations take the batch apart.
        flow: states of the values of one iteration: varying (rows of the piece), partial (the sum
            over the pieces is that over all rows), or invariant (the same in each iteration).
        reads: result of a read -> where its rows are.
        sums: position of an accumulator -> what an iteration adds.
        writes: position of a stack -> what an iteration writes.
        counted: values that depend on the number of the iteration in another way; only the
            positions of reads and writes need them.
        repeated: (first result of an addition, position of its operand) of invariant values that
            every iteration adds to a sum.
    """

    loop: ir.Operation
    mining: StripMining
    flow: RegionFlow
    reads: dict[ir.Value, Cut] = field(default_factory=dict)
    sums: dict[int, ir.Value] = field(default_factory=dict)
    writes: dict[int, ir.Value] = field(default_factory=dict)
    counted: set[ir.Value] = field(default_factory=set)
    repeated: set[tuple[ir.Value, int]] = field(default_factory=set)

    @property
    def body(self) -> ir.Block:
        """The block of one iteration."""
        return self.loop.regions[1].blocks[0]

    @property
    def pieces(self) -> int:
        """Number of iterations."""
        return self.mining.counted.trips

    def state(self, value: ir.Value) -> State:
        """The state of a value of the body, or from outside."""
        return self.flow.states.get(value, INVARIANT)


def joined_pieces(loop: ir.Operation, mining: StripMining, rules: Rules) -> JoinedPieces | None:
    """How to run the body of a strip-mined loop once, on all pieces; None if that would change
    more than the order of additions: an iteration compares the rows of its piece with each other,
    is not linear in a sum over them, or draws random numbers for them."""
    if SHARDING in loop.attributes:
        return None
    if any(op.name == "func.call" or must_run_once(op) for op in walk(loop)):
        return None
    others = _other_reads(loop, mining)
    # A piece that is one row of a stack [pieces, rows, ..] has its rows in the next dim.
    for behind, more in itertools.product((1, 0), (others, {}) if others else ({},)):
        found = JoinedPieces(loop, mining, RegionFlow([], rules))
        if _run(found, {**more, **mining.reads}, behind) and not found.flow.strip_mined:
            return found
    return None


def _other_reads(loop: ir.Operation, mining: StripMining) -> dict[int, int]:
    """Position in the body of a read of one piece of a value from outside that is no part of the
    batch (a mask, random numbers) -> its dim."""
    body, found = loop.regions[1].blocks[0], {}
    wanted, values = mining.counted.rows(mining.forwards), mining.counted.values(body)
    outside = set(captures(loop))
    for position, op in enumerate(ops_of(body)):
        if op.name == "stablehlo.dynamic_slice" and op.operands[0] in outside:
            whole, *starts = op.operands
            sizes = shape_of(op.results[0])
            dim = block_dim(shape_of(whole), starts, sizes, wanted, values)
            if dim is not None:
                found[position] = dim
    return found


def _run(found: JoinedPieces, reads: Mapping[int, int], behind: int) -> bool:
    """Fills in all attributes; False if the pieces cannot be joined.

    Args:
        reads: position in the body of a read of a piece -> its dim.
        behind: dims between the one in which pieces of size 1 follow each other and their rows.
    """
    body, mining = found.body, found.mining
    handed = block_terminator(body).operands
    found.flow.states.update(dict.fromkeys(captures(found.loop), INVARIANT))
    found.flow.states.update(dict.fromkeys(body.arguments, INVARIANT))
    found.counted.update(body.arguments[p] for p in mining.counted.counters)
    ends: dict[ir.Operation, int] = {}
    for p, value in enumerate(handed):
        op = defining_op(value)
        if p in mining.writes and op is not None:
            found.writes[p], ends[op] = op.operands[1], p
        elif p not in mining.counted.counters and op is not None and _adds(op, body.arguments[p]):
            other = 1 if op.operands[0] == body.arguments[p] else 0
            found.sums[p], ends[op] = op.operands[other], p
    for position, op in enumerate(ops_of(body)[:-1]):
        if op in ends:
            continue
        if position in reads:
            _read(found, op, reads[position], behind)
        elif not _step(found, op):
            return False
    return _ends_agree(found, behind)


def _adds(op: ir.Operation, argument: ir.Value) -> bool:
    return op.name == "stablehlo.add" and argument in list(op.operands)


def _read(found: JoinedPieces, op: ir.Operation, dim: int, behind: int) -> None:
    shape = shape_of(op.results[0])
    rows = dim + behind if shape[dim] == 1 else dim
    if rows >= len(shape):  # a number of each piece, not of each row
        found.counted.add(op.results[0])
        found.flow.states[op.results[0]] = INVARIANT
        return
    found.reads[op.results[0]] = Cut(rows)
    found.flow.states[op.results[0]] = State(Kind.VARYING, 0, Cut(rows))


def _step(found: JoinedPieces, op: ir.Operation) -> bool:
    """The states of the results of one op; False if it cannot work on all rows at once."""
    states = [found.state(v) for v in op.operands]
    if op.name in IDENTITIES:
        found.flow.states.update(zip(op.results, states, strict=True))
        pairs = zip(op.operands, op.results, strict=True)
        found.counted.update(result for operand, result in pairs if operand in found.counted)
        return True
    if any(v in found.counted for v in inputs(op)):
        found.counted.update(op.results)
        found.flow.states.update((result, INVARIANT) for result in op.results)
        return all(found.state(v) == INVARIANT for v in inputs(op))
    if op.name == "stablehlo.convert" and states == [PARTIAL] and _rounds(op):
        found.flow.states[op.results[0]] = PARTIAL
        return True
    if op.name in ADDITIONS and set(states) == {PARTIAL, INVARIANT}:
        whole = states.index(INVARIANT)
        if not is_zero(op.operands[whole]):
            found.repeated.add((op.results[0], whole))
        found.flow.states[op.results[0]] = PARTIAL
        return True
    results = transfer(op, states, found.flow, set())
    if results is None:
        return False
    found.flow.states.update(zip(op.results, results, strict=True))
    return True


def _rounds(op: ir.Operation) -> bool:
    """Whether a conversion only rounds, to a type of the same range. The number of rows added up
    before it then affects only the rounding."""
    return (element_type(op.operands[0]), element_type(op.results[0])) == ("f32", "bf16")


def _ends_agree(found: JoinedPieces, behind: int) -> bool:
    """Whether the results of the loop can be computed from those of one run."""
    for value in found.sums.values():
        if value in found.counted or found.state(value).varies:
            return False
    return all(
        value not in found.counted and _is_joined(found, p, value, behind)
        for p, value in found.writes.items()
    )


def _is_joined(found: JoinedPieces, position: int, value: ir.Value, behind: int) -> bool:
    """Whether a stack is made of the rows, or only its sum is used."""
    dim, state = found.mining.writes[position], found.state(value)
    unit = shape_of(value)[dim] == 1
    if state.varies:
        return state.cut == Cut(dim + behind if unit else dim)
    return state.is_partial and unit and only_summed(found.loop.results[position], dim)


def only_summed(value: ir.Value, dim: int) -> bool:
    """Whether all users of a value only add it up along `dim`."""
    for use in value.uses:
        op = use.owner.operation
        if op.name != "stablehlo.reduce" or len(op.operands) != 2 or use.operand_number != 0:
            return False
        dims = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        if dim not in dims or reducer(op) != "add" or not is_zero(op.operands[1]):
            return False
    return True
