"""What a device holds when it holds most, by what it is for."""

from collections.abc import Sequence

import numpy as np

from shardc.analysis.shardings.planned_reshards import Buffer
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.plan.predicted import Memory
from shardc.plan.value_id import is_accumulator, is_argument


def memory_at_peak(
    built: StageProblem, choice: Sequence[int], buffers: Sequence[Buffer] = ()
) -> Memory:
    """Bytes of each kind on one device at the time of a step when their sum is largest.

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
    return Memory(**held)


def kind_of_value(built: StageProblem, value: str) -> str:
    """The field of `Memory` that a value counts to, if it is held."""

    def are_in(names: dict[str, tuple[str, ...]], *wanted: str) -> bool:
        return any(value in ids and name.split("_")[1] in wanted for name, ids in names.items())

    if is_argument(value):
        if value not in built.state:
            return "inputs"
        read = are_in(built.function_args, "before", "forward", "backward")
        return "parameters" if read else "optimizer_state"
    if is_accumulator(value):
        return "gradients"
    if are_in(built.function_results, "backward") and are_in(built.function_args, "update"):
        return "gradients"
    if are_in(built.function_results, "forward") and are_in(built.function_args, "backward"):
        return "stash"
    return "temporaries"
