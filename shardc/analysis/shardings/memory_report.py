"""Peak memory of a device, broken down by kind, and the memory of one layer."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from shardc.analysis.shardings.planned_reshards import Buffer
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.plan.function_kind import FunctionKind as Kind
from shardc.plan.predicted import Held, Memory
from shardc.plan.value_id import is_accumulator, is_argument


@dataclass(frozen=True)
class Peak:
    """The time of peak memory of a device.

    Attributes:
        place: the function that runs, and the position of its op.
        held: the values that are live then.
    """

    place: tuple[str, int]
    held: tuple[Held, ...]

    @property
    def memory(self) -> Memory:
        """Bytes of each kind."""
        found: dict[str, int] = {}
        for each in self.held:
            found[each.kind] = found.get(each.kind, 0) + each.num_bytes
        return Memory(**found)


def memory_at_peak(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()
) -> Memory:
    """Bytes of each kind on one device at the time of peak memory."""
    return peak_of(built, choice, buffers).memory


def peak_of(built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()) -> Peak:
    """The time of peak memory of a device, and what is live at that time.

    State arguments are parameters if forward or backward reads them, and optimizer state if only
    the update does; all other arguments are inputs. Gathered parameters and what is made before
    the microbatches, such as cast parameters, count as parameters. Gradients are accumulators to
    which the backward pass adds, or values that it hands to the update; results are accumulators to
    which only the forward pass adds. The stash is the values that the forward pass hands to the
    backward pass, for all microbatches in flight. All else is temporary, `buffers` included.
    """
    problem = built.problem
    values = {node: value for value, node in built.value_nodes.items()}
    held_bytes = [int(u[s]) for u, s in zip(problem.usages, choice, strict=True)]
    intervals = [*problem.intervals, *((each.start, each.end) for each in buffers)]
    usages = np.array([*held_bytes, *(each.num_bytes for each in buffers)], np.int64)
    starts, ends = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
    change = np.zeros(int(ends.max(initial=0)) + 1, np.int64)
    np.add.at(change, starts, usages)
    np.add.at(change, ends, -usages)
    peak = int(np.argmax(np.cumsum(change)))
    live = np.flatnonzero((starts <= peak) & (peak < ends) & (usages > 0)).tolist()
    makers = _makers(built, {node for node in live if node not in values})
    held = tuple(
        Held(kind_of_value(built, values[node]), int(usages[node]), values[node])
        if node in values
        else Held("temporaries", int(usages[node]), "", *makers.get(node, ("", 0)))
        for node in live
    )
    return Peak(_place(built, peak), held)


def _makers(built: StageProblem, wanted: Collection[int]) -> dict[int, tuple[str, int]]:
    """The function and the position of the op of each wanted node."""
    return {
        node: (name, position)
        for name, nodes_of_ops in built.op_nodes.items()
        for position, nodes in enumerate(nodes_of_ops)
        for node in nodes
        if node in wanted
    }


def _place(built: StageProblem, at: int) -> tuple[str, int]:
    """The function that runs at a time, and the position of its op."""
    for name, nodes in built.op_nodes.items():
        if at < len(nodes) + 2:  # two more, for arguments and results
            return name, at
        at -= len(nodes) + 2
    return "", 0


def kind_of_value(built: StageProblem, value: str) -> str:
    """The field of `Memory` that a live value counts towards."""

    def are_in(names: dict[str, tuple[str, ...]], *wanted: Kind) -> bool:
        return any(
            value in ids and built.function_kinds[name] in wanted for name, ids in names.items()
        )

    backward = Kind.BACKWARD, Kind.WEIGHT
    if is_argument(value):
        if value not in built.state:
            return "inputs"
        read = are_in(built.function_args, *(frozenset(Kind) - {Kind.REDUCE, Kind.UPDATE}))
        return "parameters" if read else "optimizer_state"
    if is_accumulator(value):
        return "gradients" if are_in(built.function_args, *backward) else "results"
    if are_in(built.function_results, Kind.BEFORE, Kind.GATHER):
        return "parameters"
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
        state_bytes: of arguments, gradients and accumulators: live throughout the step.
        stash_bytes: from the forward to the backward of one microbatch; free when updates run.
        body_bytes: peak of other values while forward or backward runs.
        update_bytes: peak of other values while the update runs, one parameter after the other.
        next_bytes: of next states that are not in place, live until the step ends.
        received_bytes: of the stash that the layer before also holds: counted once in a stage of
            both.
        before_bytes: peak of other values before the first microbatch.
    """

    state_bytes: float
    stash_bytes: float
    body_bytes: float
    update_bytes: float
    next_bytes: float = 0.0
    received_bytes: float = 0.0
    before_bytes: float = 0.0

    def scaled(self, ratio: float) -> "LayerMemory":
        """The memory for microbatches `ratio` times as large."""
        return replace(
            self,
            stash_bytes=self.stash_bytes * ratio,
            body_bytes=self.body_bytes * ratio,
            received_bytes=self.received_bytes * ratio,
        )

    def between(self, other: "LayerMemory", share: float) -> "LayerMemory":
        """Linear interpolation: `share` of the way to `other`, at least 0."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return LayerMemory(*(max(a + share * (b - a), 0.0) for a, b in pairs))


def held_values(built: StageProblem) -> dict[int, bool]:
    """Nodes of values that are live between functions -> whether they are stashed.

    A value from the layer before that the backward pass also uses is stashed too.
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
    built: StageProblem,
    choice: Sequence[int],
    buffers: Sequence[Buffer] = (),
    received: Collection[str] = (),
) -> LayerMemory:
    """The memory of a choice, by part.

    Args:
        buffers: of its reshards.
        received: ids of the values that the layer before also holds.
    """
    problem = built.problem
    state = stash = shared = 0.0
    held = held_values(built)
    theirs = {built.value_nodes[value] for value in received if value in built.value_nodes}
    for node, is_stash in held.items():
        num_bytes = float(problem.usages[node][choice[node]])
        if not is_stash:
            state += num_bytes
        elif node in theirs:
            shared += num_bytes
        else:
            stash += num_bytes
    end = max((hi for _, hi in problem.intervals), default=0)
    first = _first_of(built, lambda kind: kind is Kind.UPDATE, end)
    start = _first_of(built, lambda kind: kind.per_microbatch, first)
    values = frozenset(built.value_nodes.values())
    following = 0.0
    change = np.zeros(end + 1)
    for node, (lo, hi) in enumerate(problem.intervals):
        if node in values and node not in held and lo >= first:
            following += float(problem.usages[node][choice[node]])
        elif node not in held and lo < hi:
            change[lo] += problem.usages[node][choice[node]]
            change[hi] -= problem.usages[node][choice[node]]
    for each in buffers:
        change[each.start] += each.num_bytes
        change[min(each.end, end)] -= each.num_bytes
    live = np.cumsum(change)
    parts = live[:start], live[start:first], live[first:]
    before, body, update = (float(each.max(initial=0.0)) for each in parts)
    return LayerMemory(state, stash, body, update, following, shared, before)


def _first_of(built: StageProblem, wanted: Callable[[Kind], bool], default: int) -> int:
    """The position of the first op of a wanted kind of function."""
    kinds = map(built.function_kinds.get, built.node_functions)
    ops = zip(kinds, built.problem.intervals, strict=True)
    return min((lo for kind, (lo, _) in ops if kind and wanted(kind)), default=default)
