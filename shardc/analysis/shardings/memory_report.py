"""What a device holds when it holds most, by what it is for; and what one layer holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.analysis.shardings.planned_reshards import Buffer
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.plan.function_kind import FunctionKind as Kind
from shardc.plan.predicted import Memory
from shardc.plan.value_id import is_accumulator, is_argument


def memory_at_peak(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()
) -> Memory:
    """Bytes of each kind on one device at the time of a step when their sum is largest."""
    return _peak(built, choice, buffers)[1]


def peak_place(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()
) -> tuple[str, int]:
    """The function that runs when `memory_at_peak` is reached, and the position of its op there."""
    at = _peak(built, choice, buffers)[0]
    for name, nodes in built.op_nodes.items():
        if at < len(nodes) + 2:  # two more, for what goes in and out
            return name, at
        at -= len(nodes) + 2
    return "", 0


def _peak(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer]
) -> tuple[int, Memory]:
    """The time at which a device holds most, and what it holds then.

    Arguments that a result replaces are parameters where forward or backward read them, and
    optimizer state where only the update does; all other arguments are inputs. Gradients are
    accumulators, or what the backward pass hands to the update; the stash is what the forward pass
    hands to the backward pass, for all microbatches in flight. The rest is temporary, `buffers`
    among it.
    """
    problem = built.problem
    kinds = {node: kind_of_value(built, value) for value, node in built.value_nodes.items()}
    held_bytes = [int(u[s]) for u, s in zip(problem.usages, choice, strict=True)]
    intervals = [*problem.intervals, *((each.start, each.end) for each in buffers)]
    usages = np.array([*held_bytes, *(each.num_bytes for each in buffers)], np.int64)
    starts, ends = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
    change = np.zeros(int(ends.max(initial=0)) + 1, np.int64)
    np.add.at(change, starts, usages)
    np.add.at(change, ends, -usages)
    peak = int(np.argmax(np.cumsum(change)))
    held: dict[str, int] = {}
    for node in np.flatnonzero((starts <= peak) & (peak < ends)).tolist():
        kind = kinds.get(node, "temporaries")
        held[kind] = held.get(kind, 0) + int(usages[node])
    return peak, Memory(**held)


def kind_of_value(built: StageProblem, value: str) -> str:
    """The field of `Memory` that a value counts to, if it is held."""

    def are_in(names: dict[str, tuple[str, ...]], *wanted: Kind) -> bool:
        return any(
            value in ids and built.function_kinds[name] in wanted for name, ids in names.items()
        )

    if is_argument(value):
        if value not in built.state:
            return "inputs"
        read = are_in(built.function_args, Kind.BEFORE, Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT)
        return "parameters" if read else "optimizer_state"
    if is_accumulator(value):
        return "gradients"
    backward = Kind.BACKWARD, Kind.WEIGHT
    if are_in(built.function_results, *backward) and are_in(built.function_args, Kind.UPDATE):
        return "gradients"
    makers = Kind.FORWARD, Kind.BACKWARD
    if are_in(built.function_results, *makers) and are_in(built.function_args, *backward):
        return "stash"
    return "temporaries"


@dataclass(frozen=True)
class LayerMemory:
    """Bytes on one device.

    Attributes:
        state_bytes: of arguments, gradients and their sums: all layers hold theirs all the time.
        stash_bytes: from the forward to the backward of one microbatch.
        body_bytes: most that forward or backward hold besides, while they run.
        update_bytes: most that the update holds besides.
    """

    state_bytes: float
    stash_bytes: float
    body_bytes: float
    update_bytes: float

    def scaled(self, ratio: float) -> "LayerMemory":
        """The same when a microbatch is `ratio` times as large."""
        return LayerMemory(
            self.state_bytes, self.stash_bytes * ratio, self.body_bytes * ratio, self.update_bytes
        )

    def between(self, other: "LayerMemory", share: float) -> "LayerMemory":
        """What lies `share` of the way to `other`, nothing below 0."""

        def mixed(a: float, b: float) -> float:
            return max(a + share * (b - a), 0.0)

        return LayerMemory(
            mixed(self.state_bytes, other.state_bytes),
            mixed(self.stash_bytes, other.stash_bytes),
            mixed(self.body_bytes, other.body_bytes),
            mixed(self.update_bytes, other.update_bytes),
        )


def held_values(built: StageProblem) -> dict[int, bool]:
    """Nodes of values that are held from one function to another, and whether they are a stash.

    What comes from the layer before and is used in the backward pass again is stashed, too.
    """
    found = {}
    for value, node in built.value_nodes.items():
        kind = kind_of_value(built, value)
        if kind != "temporaries":
            found[node] = kind == "stash"
        else:
            users = {
                built.function_kinds[name]
                for name, ids in built.function_args.items()
                if value in ids
            }
            if Kind.FORWARD in users and not users.isdisjoint((Kind.BACKWARD, Kind.WEIGHT)):
                found[node] = True
    return found


def layer_memory(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()
) -> LayerMemory:
    """The parts of what a choice holds; `buffers` are those of its reshards."""
    problem = built.problem
    state = stash = 0.0
    held = held_values(built)
    for node, is_stash in held.items():
        num_bytes = float(problem.usages[node][choice[node]])
        if is_stash:
            stash += num_bytes
        else:
            state += num_bytes
    end = max((hi for _, hi in problem.intervals), default=0)
    change = np.zeros(end + 1)
    for node, (lo, hi) in enumerate(problem.intervals):
        if node not in held and lo < hi:
            change[lo] += problem.usages[node][choice[node]]
            change[hi] -= problem.usages[node][choice[node]]
    for each in buffers:
        change[each.start] += each.num_bytes
        change[min(each.end, end)] -= each.num_bytes
    live = np.cumsum(change)
    update = end
    for node, (lo, _) in enumerate(problem.intervals):
        if built.function_kinds.get(built.node_functions[node]) is Kind.UPDATE:
            update = min(update, lo)
    body, rest = live[:update], live[update:]
    return LayerMemory(state, stash, float(body.max(initial=0.0)), float(rest.max(initial=0.0)))
