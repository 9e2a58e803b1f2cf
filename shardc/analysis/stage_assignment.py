"""The stage of every op, given where the forward pass is cut.

Forward ops are cut by position. A backward op can run wherever all its forward inputs are at
hand: a forward value is at hand on the stages from its producer to its last forward user. It
runs on the latest such stage that its users still allow, so weight gradients meet their weight
and only summed cotangents cross a cut. Optimizer ops follow the parameter they update.
"""

from dataclasses import dataclass

from shardc.analysis.dataflow import Dataflow, StepFacts
from shardc.analysis.direction import numel

HEAVY = frozenset(
    f"stablehlo.{name}"
    for name in (
        "dot_general convolution while case sort scatter select_and_scatter reduce_window"
        " rng_bit_generator custom_call fft cholesky triangular_solve"
    ).split()
)


@dataclass(frozen=True)
class StageAssignment:
    """Where everything lives.

    Attributes:
        cloned: ops that are cheap or invariant and are copied to every stage that uses them.
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


def cloneable_ops(flow: Dataflow, facts: StepFacts, state_args: set[int]) -> set[int]:
    """Ops that are copied to their users instead of living on one stage.

    The whole phase "before"; ops of the body that no microbatch changes; cheap preparation of
    the batch (no state, no heavy op upstream); scalar arithmetic of the update on arguments.
    """
    found: set[int] = set()
    for i, op in enumerate(flow.ops):
        phase = facts.phase[i]
        if phase == "before":
            found.add(i)
            continue
        if i in facts.accumulates or any(
            j not in found and facts.phase[j] != "before" for j in flow.op_inputs[i]
        ):
            continue
        index = op.name == "stablehlo.custom_call" and len(op.operands) == 0
        if op.name in HEAVY and not index:
            continue
        if phase == "body":
            varying = i in facts.varying
            big_state = any(
                n in state_args and numel(flow_argument(flow, i, n)) > 1 for n in flow.arg_inputs[i]
            )
            if not varying or not big_state:
                found.add(i)
        elif _is_scalar(flow, i) and not _has_big_input(flow, i):
            found.add(i)
        elif not flow.arg_inputs[i] and not flow.op_inputs[i]:
            found.add(i)
    return found


def flow_argument(flow: Dataflow, op: int, arg: int) -> object:
    """The value of argument `arg` as op number `op` uses it."""
    block = flow.ops[op].block
    return block.arguments[arg]


def _has_big_input(flow: Dataflow, i: int) -> bool:
    return any(numel(operand) > 1 for operand in flow.ops[i].operands)


def assign_stages(
    flow: Dataflow,
    facts: StepFacts,
    forward: set[int],
    state_args: set[int],
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
    cloned = cloneable_ops(flow, facts, state_args)
    stage = [-1] * len(flow.ops)
    for i in sorted(forward - cloned):
        stage[i] = sum(i >= cut for cut in cuts)
    for i in facts.accumulates:
        if i in forward:
            sources = [stage[j] for j in flow.op_inputs[i] if j not in cloned]
            stage[i] = max(sources, default=num_stages - 1)
    update = _UpdateComponents(flow, facts, cloned, aliases)
    weights = _stages_of_args(flow, forward, cloned, stage)
    owned = {n: found for n, found in weights.items() if n in state_args}
    wanted = update.stage_of_accumulates(owned)
    _assign_backward(flow, facts, forward, cloned, stage, weights, wanted, num_stages)
    body = {i for i, phase in enumerate(facts.phase) if phase == "body"}
    uses = _stages_of_args(flow, body, cloned, stage) | owned
    arg_stage = update.assign(stage, {n: f for n, f in uses.items() if n in state_args}, uses)
    result_stage = []
    for kind, index in flow.returned:
        owner = arg_stage[index] if kind == "arg" else stage[index]
        result_stage.append(max(owner, 0))
    for arg, result in aliases.items():
        kind, index = flow.returned[result]
        if kind == "op" and stage[index] < 0:
            result_stage[result] = max(arg_stage[arg], 0)
    return StageAssignment(cloned, stage, forward, arg_stage, result_stage)


def _assign_backward(
    flow: Dataflow,
    facts: StepFacts,
    forward: set[int],
    cloned: set[int],
    stage: list[int],
    weights: dict[int, tuple[int, int]],
    wanted: dict[int, int],
    num_stages: int,
) -> None:
    last = list(stage)
    for i in forward - cloned:
        last[i] = max([stage[i], *(stage[u] for u in flow.users[i] if u in forward - cloned)])
    backward = [
        i
        for i, phase in enumerate(facts.phase)
        if phase == "body" and i not in forward and i not in cloned
    ]
    accumulates = set(facts.accumulates)
    low, high = [0] * len(flow.ops), [num_stages - 1] * len(flow.ops)
    for i in backward:
        for j in flow.op_inputs[i]:
            if j in cloned:
                continue
            lo, hi = (stage[j], last[j]) if j in forward else (low[j], high[j])
            low[i], high[i] = max(low[i], lo), min(high[i], hi)
        for n in flow.arg_inputs[i]:
            if n in weights:
                low[i] = max(low[i], weights[n][0])
                high[i] = min(high[i], weights[n][1])
        low[i] = min(low[i], high[i])
    for i in reversed(backward):
        users = [
            wanted.get(u, high[i]) if u in accumulates else stage[u]
            for u in flow.users[i]
            if facts.phase[u] == "body" and u not in cloned
        ]
        stage[i] = min(high[i], max([low[i], *users])) if users else high[i]
    for i in backward:
        if i in accumulates:
            stage[i] = min((stage[j] for j in flow.op_inputs[i] if j not in cloned), default=0)


def _stages_of_args(
    flow: Dataflow, users: set[int], cloned: set[int], stage: list[int]
) -> dict[int, tuple[int, int]]:
    """For each argument that `users` read (also through cloned ops): first and last stage."""
    found: dict[int, tuple[int, int]] = {}
    through: dict[int, set[int]] = {}
    for i in range(len(flow.ops)):
        args = set(flow.arg_inputs[i])
        for j in flow.op_inputs[i]:
            args |= through.get(j, set())
        if i in cloned:
            through[i] = args
        elif i in users:
            for n in args:
                lo, hi = found.get(n, (stage[i], stage[i]))
                found[n] = (min(lo, stage[i]), max(hi, stage[i]))
    return found


class _UpdateComponents:
    """The update ops grouped by the tensors they update: a parameter, its moments, its gradient.

    Ops are connected through tensors of more than one element; scalars (a step count, a global
    norm) connect nothing. A group lives where the body first uses its parameter.
    """

    def __init__(
        self, flow: Dataflow, facts: StepFacts, cloned: set[int], aliases: dict[int, int]
    ) -> None:
        self.flow, self.facts, self.cloned = flow, facts, cloned
        after = [i for i, p in enumerate(facts.phase) if p == "after" and i not in cloned]
        self.scalars = [i for i in after if _is_scalar(flow, i) and not _has_big_input(flow, i)]
        taken = set(self.scalars)
        self.tensors = [i for i in after if i not in taken]
        self.parent = list(range(len(flow.ops) + len(flow.arg_users)))  # ops, then arguments
        for i in self.tensors:
            for j in flow.op_inputs[i]:
                if facts.phase[j] == "after" and j not in cloned and not _is_scalar(flow, j):
                    self._join(i, j)
            for n in flow.arg_inputs[i]:
                if numel(flow.ops[i].block.arguments[n]) > 1:
                    self._join(i, len(flow.ops) + n)
        for arg, result in aliases.items():
            kind, index = flow.returned[result]
            if kind == "op" and facts.phase[index] == "after" and index not in cloned | taken:
                self._join(len(flow.ops) + arg, index)

    def _find(self, x: int) -> int:
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def _join(self, x: int, y: int) -> None:
        self.parent[self._find(x)] = self._find(y)

    def _owners(self, owned: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Group -> (first, last) stage that uses its largest owned argument."""
        best: dict[int, tuple[int, tuple[int, int]]] = {}
        for n, found in owned.items():
            root = self._find(len(self.flow.ops) + n)
            users = self.flow.arg_users[n]
            size = numel(self.flow.ops[users[0]].block.arguments[n]) if users else 0
            if root not in best or size > best[root][0]:
                best[root] = (size, found)
        return {root: found for root, (_, found) in best.items()}

    def stage_of_accumulates(self, owned: dict[int, tuple[int, int]]) -> dict[int, int]:
        """For each accumulation that updates an owned argument: the last stage using that."""
        owners = self._owners(owned)
        wanted: dict[int, int] = {}
        for i in self.tensors:
            root = self._find(i)
            if root in owners:
                for j in self.flow.op_inputs[i]:
                    if j in self.facts.accumulates:
                        wanted[j] = owners[root][1]
        return wanted

    def assign(
        self,
        stage: list[int],
        owned: dict[int, tuple[int, int]],
        uses: dict[int, tuple[int, int]],
    ) -> list[int]:
        """Writes the stages of the update ops; returns the owner of each argument."""
        flow = self.flow
        chosen = {root: found[0] for root, found in self._owners(owned).items()}
        for i in self.tensors:
            root = self._find(i)
            sources = [stage[j] for j in flow.op_inputs[i] if j in self.facts.accumulates]
            if root not in chosen and sources:
                chosen[root] = sources[0]
        for i in self.tensors:
            stage[i] = chosen.get(self._find(i), 0)
        for i in self.scalars:
            sources = [stage[j] for j in flow.op_inputs[i] if j not in self.cloned]
            stage[i] = max(sources, default=0)
        owners = []
        for n in range(len(flow.arg_users)):
            home = chosen.get(self._find(len(flow.ops) + n))
            owners.append(home if home is not None else uses.get(n, (0, 0))[0])
        return owners


def _is_scalar(flow: Dataflow, i: int) -> bool:
    return all(numel(result) == 1 for result in flow.ops[i].results)
