"""The functions that a staged @main is split into, and their inputs and outputs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.stages.update_order import leaf_by_leaf
from shardc.ir.attributes import (
    ACCUMULATE,
    DIRECTION,
    RECOMPUTED,
    STAGE,
    call_target,
    get_int,
    get_str,
    phase_of,
)
from shardc.ir.clone import inputs
from shardc.ir.effects import is_pure
from shardc.ir.tensor_types import num_bytes, num_elements
from shardc.ir.walk import body, defining_op, ops, terminator
from shardc.plan.function_kind import FunctionKind, Phase
from shardc.plan.value_id import accumulator_id, argument_id, computed_id

CONSTANT_OPS = frozenset(
    f"stablehlo.{name}" for name in "constant iota broadcast_in_dim convert reshape".split()
)
VIEWS = frozenset(f"stablehlo.{name}" for name in ("convert", "reshape", "transpose"))


Place = tuple[int, FunctionKind, int]  # stage, kind, round


@dataclass
class StageFunction:
    """A function to be outlined.

    Attributes:
        inputs: values defined outside that its ops use, arguments of @main included.
        outputs: values defined by its ops that other functions use or @main returns.
        barriers: in front of an op, values that pass a barrier together.
    """

    stage: int
    kind: FunctionKind
    round: int
    ops: list[ir.Operation] = field(default_factory=list)
    inputs: list[ir.Value] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    barriers: dict[ir.Operation, list[ir.Value]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`stage0_forward`; an update has its round as a suffix: `stage0_update_1`."""
        number = f"_{self.round}" if self.kind is FunctionKind.UPDATE else ""
        return f"stage{self.stage}_{self.kind}{number}"


@dataclass(frozen=True)
class StageFunctions:
    """All functions of a step, in the order stage, kind, round.

    Attributes:
        ids: of every value that functions pass to each other or return, arguments included.
    """

    functions: list[StageFunction]
    ids: dict[ir.Value, str]


def stage_functions(main: ir.Operation, *, in_place: bool) -> StageFunctions:
    """Groups the ops of @main by stage, phase, direction and round. A forward op that is marked as
    recomputed is also cloned into its stage's backward function, before its first user there.
    A barrier makes it wait for what else that user needs: XLA, which orders the ops of a function
    itself, would compute it too early.

    Args:
        in_place: accumulators get ids of their own, "acc3", not "v3": the function that adds to
            one takes it as an argument and returns it.
    """
    all_ops = ops(main)
    remat = _rematerialized(main)
    reads = _Reads(all_ops, remat)
    recomputed: dict[int, set[ir.Operation]] = {}
    for op in all_ops:
        if RECOMPUTED in op.attributes:
            recomputed.setdefault(get_int(op, STAGE) or 0, set()).add(op)
    returned = set(terminator(main).operands)
    places: dict[ir.Operation, Place] = {}
    for op in all_ops:
        if op not in remat or not returned.isdisjoint(op.results):
            places[op] = _place(op, places, reads)
    _delay(main, places, reads)
    home: dict[ir.Value, StageFunction] = {}
    functions: dict[tuple[int, int, int], StageFunction] = {}
    for op, (stage, kind, level) in places.items():
        key = (stage, kind.order, level)
        function = functions.setdefault(key, StageFunction(stage, kind, level))
        function.ops.append(op)
        home.update((result, function) for result in op.results)
    ordered = [functions[key] for key in sorted(functions)]
    for function in ordered:
        needed = remat
        if function.kind is FunctionKind.UPDATE:
            function.ops = leaf_by_leaf(function.ops, reads.sources)
        elif function.kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT):
            forward = functions.get((function.stage, FunctionKind.FORWARD.order, 0))
            early = _early(function, forward, reads)
            function.ops = [op for op in function.ops if op not in early]
            needed = remat | early
        again: set[ir.Operation] = set()
        if function.kind is FunctionKind.BACKWARD:
            again = recomputed.get(function.stage, again)
            needed = needed | again
        function.ops = _with_rematerialized(function.ops, reads, needed)
        if again:
            function.barriers = _barriers(function.ops, reads, needed, again)
        own = {result for op in function.ops for result in op.results}
        used = dict.fromkeys(value for op in function.ops for value in reads.inputs[op])
        function.inputs = [value for value in used if value not in own]
    crossing = {value for function in ordered for value in function.inputs}
    crossing.update(terminator(main).operands)
    ids: dict[ir.Value, str] = {
        value: argument_id(n) for n, value in enumerate(body(main).arguments)
    }
    number = 0
    for op in all_ops:
        for result in op.results:
            if result in crossing:
                accumulates = in_place and call_target(op) == ACCUMULATE
                ids[result] = accumulator_id(number) if accumulates else computed_id(number)
                home[result].outputs.append(result)
                number += 1
    return StageFunctions(ordered, ids)


class _Reads:
    """The inputs of the ops of @main, read once.

    Attributes:
        inputs: of each op, captures included.
        place: of each op in @main.
        maker: of each value that an op makes.
    """

    def __init__(self, all_ops: Sequence[ir.Operation], remat: Collection[ir.Operation]) -> None:
        self.inputs = {op: inputs(op) for op in all_ops}
        self.place = {op: number for number, op in enumerate(all_ops)}
        self.maker: dict[ir.Value, ir.Operation] = {
            result: op for op in all_ops for result in op.results
        }
        self._remat = remat
        self._sources: dict[ir.Operation, list[ir.Value]] = {}

    def sources(self, op: ir.Operation) -> list[ir.Value]:
        """The operands of an op, looking through the ops that are rematerialized before it."""
        if op not in self._sources:
            found: list[ir.Value] = []
            for value in self.inputs[op]:
                maker = self.maker.get(value)
                if maker is not None and maker in self._remat:
                    found += self.sources(maker)
                else:
                    found.append(value)
            self._sources[op] = found
        return self._sources[op]

    def makers(self, op: ir.Operation) -> list[ir.Operation]:
        """The ops that make the inputs of an op."""
        return [self.maker[value] for value in self.inputs[op] if value in self.maker]


def _rematerialized(main: ir.Operation) -> set[ir.Operation]:
    """Light ops of the update that are rematerialized in every round.

    These are: ops on constants alone (the planner and the lowering must see that a sum starts from
    zero); broadcasts of one element (then only the element passes between rounds); and views of an
    accumulator of the same stage (else a second copy of all gradients stays live while their norm
    is computed).
    """
    found: set[ir.Operation] = set()
    views: set[ir.Operation] = set()
    for op in ops(main):
        if phase_of(op) is not Phase.AFTER:
            continue
        if op.name in VIEWS and _is_view(op, views):
            views.add(op)
            continue
        if op.name not in CONSTANT_OPS:
            continue
        spreads = op.name == "stablehlo.broadcast_in_dim" and num_elements(op.operands[0]) == 1
        from_found = all(defining_op(value) in found for value in inputs(op))
        if spreads or from_found:
            found.add(op)
    return found | views


def _is_view(op: ir.Operation, views: set[ir.Operation]) -> bool:
    """Whether `op` only reshapes, transposes or casts an accumulator for ops of its own stage."""
    maker = defining_op(op.operands[0])
    if maker is None or (call_target(maker) != ACCUMULATE and maker not in views):
        return False
    stage, users = get_int(op, STAGE), [use.owner.operation for use in op.results[0].uses]
    return get_int(maker, STAGE) == stage and all(get_int(user, STAGE) == stage for user in users)


def _early(
    function: StageFunction, forward: StageFunction | None, reads: _Reads
) -> set[ir.Operation]:
    """Ops of a backward function that stand in front of the last forward op of their stage, such as
    the derivative of an activation, and that others of the function use. In the order of @main,
    those of all layers, and what they are computed from, would be live before the way back begins.
    """
    last = reads.place[forward.ops[-1]] if forward is not None else -1
    used = {maker for op in function.ops for maker in reads.makers(op)}
    return {op for op in function.ops if reads.place[op] < last and op in used and is_pure(op)}


def _with_rematerialized(
    own: list[ir.Operation], reads: _Reads, remat: set[ir.Operation]
) -> list[ir.Operation]:
    """`own` with the ops of `remat` that it uses, each before its first user."""
    found: dict[ir.Operation, None] = {}
    for op in own:
        open_ops = [op]
        while open_ops:
            last = open_ops[-1]
            missing = [m for m in reads.makers(last) if m in remat and m not in found]
            if missing and last not in found:
                open_ops.append(missing[0])
            else:
                found[open_ops.pop()] = None
    return list(found)


def _barriers(
    own: Sequence[ir.Operation],
    reads: _Reads,
    needed: Collection[ir.Operation],
    again: Collection[ir.Operation],
) -> dict[ir.Operation, list[ir.Value]]:
    """`StageFunction.barriers`: what ops of `again` read of the stash passes a barrier together
    with a value of the way back, before the first of them in a row of ops of `needed`."""
    found: dict[ir.Operation, list[ir.Value]] = {}
    made: set[ir.Value] = set()  # on the way back, so far
    inside = {result for op in own for result in op.results}
    row: list[ir.Operation] = []
    for op in own:
        if op in needed:
            row.append(op)
            continue
        first = next((each for each in row if each in again), None)
        waits_for = next((value for value in reads.inputs[op] if value in made), None)
        if first is not None and waits_for is not None:
            read = dict.fromkeys(v for each in row if each in again for v in reads.inputs[each])
            stashed = [v for v in read if v not in inside and is_per_microbatch(v)]
            if stashed:
                found[first] = [waits_for, *stashed]
        row = []
        made.update(op.results)
    return found


def is_per_microbatch(value: ir.Value) -> bool:
    """Whether a value of a staged @main exists once per microbatch; accumulators do not."""
    producer = value.owner
    if isinstance(producer, ir.Block) or call_target(producer.operation) == ACCUMULATE:
        return False
    return phase_of(producer.operation) is Phase.BODY


def _place(op: ir.Operation, places: dict[ir.Operation, Place], reads: _Reads) -> Place:
    """The earliest place of an op; a value from another stage's update starts a new round."""
    stage, phase = get_int(op, STAGE) or 0, phase_of(op)
    if phase is Phase.BEFORE:
        return stage, FunctionKind.BEFORE, 0
    if phase is Phase.BODY:
        return stage, FunctionKind(get_str(op, DIRECTION) or FunctionKind.BACKWARD), 0
    makers = [
        places[maker]
        for value in reads.sources(op)
        if (maker := reads.maker.get(value)) is not None and maker in places
    ]
    rounds = [
        level + (other != stage) for other, kind, level in makers if kind is FunctionKind.UPDATE
    ]
    return stage, FunctionKind.UPDATE, max(rounds, default=0)


def _delay(main: ir.Operation, places: dict[ir.Operation, Place], reads: _Reads) -> None:
    """Sinks ops of an update to the round of their first user if their operands stay live anyway.

    Otherwise products of optimizer state with a constant would stay live beside the state until
    the norm of all gradients is known.
    """
    updates = [op for op, (_, kind, _) in places.items() if kind is FunctionKind.UPDATE]
    users: dict[ir.Operation, set[ir.Operation | None]] = {op: set() for op in updates}
    for op in updates:  # only these read what an update makes
        for value in reads.sources(op):
            if (maker := reads.maker.get(value)) is not None and maker in users:
                users[maker].add(op)
    for value in terminator(main).operands:
        if (maker := reads.maker.get(value)) is not None and maker in users:
            users[maker].add(None)
    for op in reversed(updates):
        stage, kind, level = places[op]
        if None in users[op] or not users[op]:
            continue
        after = [places[user] for user in users[op] if user is not None]
        if any((other, its_kind) != (stage, kind) for other, its_kind, _ in after):
            continue
        kept = sum(num_bytes(v) for v in reads.sources(op) if not _is_kept(v))
        if kept <= sum(num_bytes(result) for result in op.results):
            places[op] = stage, kind, max(level, min(its_level for _, _, its_level in after))


def _is_kept(value: ir.Value) -> bool:
    """Whether a value is live until the end of the step: an argument or an accumulator."""
    maker = defining_op(value)
    return maker is None or call_target(maker) == ACCUMULATE
