"""The stage of every op, given the cuts of the forward pass.

Forward ops are cut by position. A backward op can run on any stage where all its forward operands
are available: a forward value is available from the stage of its producer to that of its last
forward user. It runs on the earliest such stage that its users allow, so weight gradients meet
their weight and only summed cotangents cross a cut. Optimizer ops follow the parameter they update.
"""

import bisect
from dataclasses import dataclass

from shardc.analysis.program.def_use import Dataflow, StepFacts
from shardc.analysis.stages.cloned_ops import cloneable_ops
from shardc.analysis.stages.update_groups import Stages, UpdateGroups
from shardc.plan.function_kind import Phase


@dataclass(frozen=True)
class StageAssignment:
    """The stage of every op, argument and result.

    Attributes:
        cloned: cheap or invariant ops that are cloned into every stage that uses them.
        stage: for each op its stage; -1 for cloned ops.
        forward: ops of the body in the forward direction.
        arg_stage: owner of each argument.
        result_stage: stage that returns each result.
    """

    cloned: set[int]
    stage: list[int]
    forward: set[int]
    arg_stage: list[int]
    result_stage: list[int]


def assign_stages(
    flow: Dataflow,
    facts: StepFacts,
    forward: set[int],
    aliases: dict[int, int],
    cuts: list[int],
) -> StageAssignment:
    """Gives every op, argument and result its stage.

    Args:
        forward: the forward ops.
        aliases: argument -> result of the function that is its next state.
        cuts: for each stage but the first, the position of its first forward op.
    """
    num_stages = len(cuts) + 1
    cloned = cloneable_ops(flow, facts, set(aliases))
    stage = [-1] * len(flow.ops)
    for i in sorted(forward - cloned):
        stage[i] = bisect.bisect_right(cuts, i)
    for i in facts.accumulates:
        if i in forward:
            sources = [stage[j] for j in flow.op_inputs[i] if j not in cloned]
            stage[i] = max(sources, default=num_stages - 1)
    groups = UpdateGroups(flow, facts, cloned, aliases)
    reads = _arguments_read(flow, cloned)
    weights = _stages_of_args(reads, forward - cloned, stage)
    owned = {n: found for n, found in weights.items() if n in aliases}
    wanted = groups.stage_of_accumulates(owned)
    _assign_backward(flow, facts, forward, cloned, stage, reads, weights, wanted, num_stages)
    _assign_before(flow, facts, cloned, stage)
    earlier = {i for i, phase in enumerate(facts.phase) if phase is not Phase.AFTER}
    uses = _stages_of_args(reads, earlier - cloned, stage) | owned
    grouped = groups.assign(stage, {n: found for n, found in uses.items() if n in aliases})
    first_use = {n: first for n, (first, _) in uses.items()}
    arg_stage = [grouped.get(n, first_use.get(n, 0)) for n in range(len(flow.arg_users))]
    for arg, result in aliases.items():
        kind, index = flow.returned[result]
        if kind == "op" and stage[index] >= 0:
            arg_stage[arg] = stage[index]  # the stage that computes the next state owns it
    result_stage = []
    for kind, index in flow.returned:
        owner = arg_stage[index] if kind == "arg" else stage[index]
        result_stage.append(max(owner, 0))
    for arg, result in aliases.items():
        kind, index = flow.returned[result]
        if kind == "op" and stage[index] < 0:
            result_stage[result] = arg_stage[arg]
    return StageAssignment(cloned, stage, forward, arg_stage, result_stage)


def _assign_backward(
    flow: Dataflow,
    facts: StepFacts,
    forward: set[int],
    cloned: set[int],
    stage: list[int],
    reads: list[set[int]],
    weights: dict[int, Stages],
    wanted: dict[int, int],
    num_stages: int,
) -> None:
    """Writes the stages of the backward ops.

    An op may run on the stages from `low` (where the last of its operands is computed) to `high`
    (the last where all its forward operands are available). An operand is never on an earlier stage
    than its backward user, so cotangents only flow towards the first stage.
    """
    last = _last_uses(flow, forward - cloned, stage)
    backward = [
        i
        for i, phase in enumerate(facts.phase)
        if phase is Phase.BODY and i not in forward and i not in cloned
    ]
    accumulates = facts.accumulates
    low, high = [0] * len(flow.ops), [num_stages - 1] * len(flow.ops)
    for i in backward:
        for j in flow.op_inputs[i]:
            if j in cloned:
                continue
            lo, hi = (stage[j], last.of(j, i)) if j in forward else (low[j], high[j])
            low[i], high[i] = max(low[i], lo), min(high[i], hi)
        for n in reads[i]:
            if n in weights:
                low[i] = max(low[i], weights[n][0])
                high[i] = min(high[i], weights[n][1])
        low[i] = min(low[i], high[i])
    for i in reversed(backward):
        users = [
            wanted.get(u, high[i]) if u in accumulates else stage[u]
            for u in flow.users[i]
            if facts.phase[u] is Phase.BODY and u not in cloned
        ]
        stage[i] = min(high[i], max([low[i], *users])) if users else high[i]
    for i, home in wanted.items():
        moved = _movable(flow, cloned, forward, stage, last, high, i, home)
        for j in moved:
            stage[j] = home
    for i in backward:
        if i in accumulates:
            stage[i] = min((stage[j] for j in flow.op_inputs[i] if j not in cloned), default=0)


def _assign_before(flow: Dataflow, facts: StepFacts, cloned: set[int], stage: list[int]) -> None:
    """Writes the stages of the ops before the microbatches that run once: those of their first
    users."""
    first: dict[int, int] = {}
    for i in reversed(range(len(flow.ops))):
        if facts.phase[i] is Phase.BEFORE and i not in cloned:
            stage[i] = max(first.get(i, 0), 0)
        at = first.get(i, -1) if i in cloned else stage[i]
        for j in flow.op_inputs[i] if at >= 0 else ():
            first[j] = min(first.get(j, at), at)


@dataclass(frozen=True)
class _LastUses:
    """The last stage on which a forward value is available: that of its last forward user."""

    flow: Dataflow
    ops: list[int]
    results: dict[int, list[int]]

    def of(self, maker: int, user: int) -> int:
        """The last stage on which all results of op `maker` that op `user` uses are available."""
        if maker not in self.results:
            return self.ops[maker]
        each = zip(self.results[maker], self.flow.users_by_result[maker], strict=True)
        return min(last for last, users in each if user in users)


def _last_uses(flow: Dataflow, staged: set[int], stage: list[int]) -> _LastUses:
    def last(maker: int, users: list[int]) -> int:
        return max([stage[maker], *(stage[u] for u in users if u in staged)])

    ops = [last(i, users) if i in staged else stage[i] for i, users in enumerate(flow.users)]
    by_result = flow.users_by_result.items()
    return _LastUses(
        flow, ops, {i: [last(i, users) for users in each] for i, each in by_result if i in staged}
    )


def _movable(
    flow: Dataflow,
    cloned: set[int],
    forward: set[int],
    stage: list[int],
    last: _LastUses,
    high: list[int],
    accumulate: int,
    home: int,
) -> set[int]:
    """The last ops of a gradient that can run at `home`, the stage of the weight, at no cost.

    They can if their operands are there anyway, such as a cotangent that crosses the cut: then the
    reduced gradient of a bias need not be sent. Empty if more values would have to cross.
    """
    moved: set[int] = set()
    open_ops = [j for j in flow.op_inputs[accumulate] if j not in cloned and stage[j] > home]
    while open_ops:
        i = open_ops.pop()
        if i in moved:
            continue
        if (
            i in forward
            or home > high[i]
            or not moved.union([accumulate]).issuperset(flow.users[i])
        ):
            return set()
        moved.add(i)
        for j in flow.op_inputs[i]:
            if j in cloned or (j in forward and stage[j] <= home <= last.of(j, i)):
                continue
            others = [u for u in flow.users[j] if u not in moved and u not in cloned]
            if not any(u not in forward and stage[u] <= home for u in others):
                open_ops.append(j)
    return moved


def _arguments_read(flow: Dataflow, cloned: set[int]) -> list[set[int]]:
    """For each op the arguments that it reads, directly or through cloned ops."""
    found: list[set[int]] = []
    for i in range(len(flow.ops)):
        args = set(flow.arg_inputs[i])
        for j in flow.op_inputs[i]:
            if j in cloned:
                args |= found[j]
        found.append(args)
    return found


def _stages_of_args(reads: list[set[int]], users: set[int], stage: list[int]) -> dict[int, Stages]:
    """For each argument that the ops `users` read: first and last stage."""
    found: dict[int, Stages] = {}
    for i in users:
        for n in reads[i]:
            lo, hi = found.get(n, (stage[i], stage[i]))
            found[n] = (min(lo, stage[i]), max(hi, stage[i]))
    return found
