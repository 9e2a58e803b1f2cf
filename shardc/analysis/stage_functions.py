"""Into which functions a staged @main falls, and which values go in and out of each."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.ir.attributes import ACCUMULATE, DIRECTION, PHASE, STAGE, call_target, get_int, get_str
from shardc.ir.clone import inputs
from shardc.ir.walk import body, ops, terminator

KINDS = ("before", "forward", "backward", "update")
CONSTANT_OPS = frozenset(
    f"stablehlo.{name}" for name in "constant iota broadcast_in_dim convert reshape".split()
)


@dataclass
class StageFunction:
    """One function to be: the ops it takes over, and the values of other functions it uses.

    Attributes:
        inputs: values that its ops use and others make, arguments of @main included.
        outputs: values that its ops make and others use, or @main returns.
    """

    stage: int
    kind: str
    round: int
    ops: list[ir.Operation] = field(default_factory=list)
    inputs: list[ir.Value] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`stage0_forward`; updates have their round behind it: `stage0_update_1`."""
        number = f"_{self.round}" if self.kind == "update" else ""
        return f"stage{self.stage}_{self.kind}{number}"


@dataclass(frozen=True)
class StageFunctions:
    """All functions of a step, in the order stage, kind, round.

    Attributes:
        ids: of every value that crosses between functions or is returned, arguments included.
    """

    functions: list[StageFunction]
    ids: dict[ir.Value, str]


def stage_functions(main: ir.Operation, *, in_place: bool) -> StageFunctions:
    """Groups the ops of @main by stage, phase, direction and round.

    Args:
        in_place: accumulators get ids of their own, "acc3", not "v3": the function that adds to
            one takes it and gives it back.
    """
    all_ops = ops(main)
    constants = _constants(main)
    home: dict[ir.Value, StageFunction] = {}
    functions: dict[tuple[int, int, int], StageFunction] = {}
    for op in all_ops:
        if op in constants:
            continue
        stage, kind, level = _place(op, home)
        key = (stage, KINDS.index(kind), level)
        function = functions.setdefault(key, StageFunction(stage, kind, level))
        function.ops.append(op)
        home.update((result, function) for result in op.results)
    ordered = [functions[key] for key in sorted(functions)]
    for function in ordered:
        function.ops = _with_constants(function.ops, constants)
        own = {result for op in function.ops for result in op.results}
        used = dict.fromkeys(value for op in function.ops for value in inputs(op))
        function.inputs = [value for value in used if value not in own]
    crossing = {value for function in ordered for value in function.inputs}
    crossing.update(terminator(main).operands)
    ids: dict[ir.Value, str] = {value: f"arg{n}" for n, value in enumerate(body(main).arguments)}
    number = 0
    for op in all_ops:
        for result in op.results:
            if result in crossing:
                accumulates = in_place and call_target(op) == ACCUMULATE
                ids[result] = f"acc{number}" if accumulates else f"v{number}"
                home[result].outputs.append(result)
                number += 1
    return StageFunctions(ordered, ids)


def _constants(main: ir.Operation) -> set[ir.Operation]:
    """Light ops of the update made of nothing but numbers: every round has its own copy.

    The planner and the lowering must see that a sum starts from zero.
    """
    returned = set(terminator(main).operands)
    found: set[ir.Operation] = set()
    for op in ops(main):
        makers = [value.owner for value in inputs(op)]
        if (
            op.name in CONSTANT_OPS
            and get_str(op, PHASE) == "after"
            and returned.isdisjoint(op.results)
            and all(not isinstance(m, ir.Block) and m.operation in found for m in makers)
        ):
            found.add(op)
    return found


def _with_constants(own: list[ir.Operation], constants: set[ir.Operation]) -> list[ir.Operation]:
    """`own` with the constants that it uses, each in front of its first user."""
    found: dict[ir.Operation, None] = {}

    def add(op: ir.Operation) -> None:
        for value in inputs(op):
            maker = value.owner
            if not isinstance(maker, ir.Block) and maker.operation in constants:
                add(maker.operation)
        found[op] = None

    for op in own:
        add(op)
    return list(found)


def is_per_microbatch(value: ir.Value) -> bool:
    """Whether a value of a staged @main exists once per microbatch; accumulators do not."""
    producer = value.owner
    if isinstance(producer, ir.Block) or call_target(producer.operation) == ACCUMULATE:
        return False
    return get_str(producer.operation, PHASE) == "body"


def _place(op: ir.Operation, home: dict[ir.Value, StageFunction]) -> tuple[int, str, int]:
    """Stage, kind and round of an op; a round ends where values of other stages' updates come."""
    stage, phase = get_int(op, STAGE) or 0, get_str(op, PHASE)
    if phase == "before":
        return stage, "before", 0
    if phase == "body":
        return stage, get_str(op, DIRECTION) or "backward", 0
    makers = [home[value] for value in inputs(op) if value in home]
    rounds = [maker.round + (maker.stage != stage) for maker in makers if maker.kind == "update"]
    return stage, "update", max(rounds, default=0)
