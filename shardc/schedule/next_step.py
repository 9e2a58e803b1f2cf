"""What one more step adds where steps follow each other, each group as soon as it is free."""

from collections.abc import Callable, Collection, Mapping
from typing import Unpack

from shardc.schedule.simulate import Ways, ends
from shardc.schedule.tasks import UPDATE, Amount, Need, Schedule, Task, TaskGraph

Between = Mapping[Task, tuple[Need, ...]]
"""What tasks of a step need of the step in front of it, beside the lane of their own group."""


def next_step_s(
    schedule: Schedule,
    graph: TaskGraph,
    duration_s: Callable[[Task], Amount],
    transfer_s: Amount | Callable[[Need], Amount] = 0,
    *,
    between: Between | None = None,
    **ways: Unpack[Ways],
) -> Amount:
    """By how much the second of two steps ends later than the first, on the group where that is
    the most.

    A group begins its lane of the second step when that of the first has ended; values of the first
    hold it back only where `between` says so. The result is at most the makespan: no group begins
    the second step later than all of them together would. It is at least the work of the busiest
    group, and at least what each of many steps takes on average, since times of a step that are
    sums and maxima of those in front (a max-plus linear system) never grow faster than in their
    first step (Baccelli et al., Synchronization and Linearity, 1992, chapter 3).

    Args:
        schedule, graph, duration_s, transfer_s, ways: as in `simulate`.
    Raises:
        ScheduleError: SHARDC-244, the tasks wait for each other.
    """
    most = 1 + max((task.microbatch for task in graph.tasks), default=0)

    def again(task: Task) -> Task:
        """The same task in the second step."""
        return task._replace(microbatch=task.microbatch + most)

    def once(need: Need) -> Need:
        task = need.task
        return need._replace(task=task._replace(microbatch=task.microbatch % most))

    waits = between or {}
    both = Schedule(tuple((*lane, *map(again, lane)) for lane in schedule.lanes), schedule.groups)
    needs = dict(graph.needs)
    for task, own in graph.needs.items():
        second = (need._replace(task=again(need.task)) for need in own)
        needs[again(task)] = (*second, *waits.get(task, ()))
    found = ends(
        both,
        TaskGraph(needs, graph.groups),
        lambda task: duration_s(task._replace(microbatch=task.microbatch % most)),
        (lambda need: transfer_s(once(need))) if callable(transfer_s) else transfer_s,
        **ways,
    )
    lasting = [[task for task in lane if duration_s(task)] for lane in schedule.lanes]
    added = [
        max(found[again(task)] for task in lane) - max(found[task] for task in lane)
        for lane in lasting
        if lane
    ]
    return max(added, default=0)


def wait_for_all(graph: TaskGraph, updates: Collection[Task]) -> bool:
    """Whether each of these tasks, the updates of a step, needs values of every device group.

    So it is where all gradients are scaled by their common norm, or dropped if one of them is not
    finite. False if there is a single group, or no update.
    """
    groups = set(graph.groups.values())

    def needed(update: Task) -> set[int]:
        """The device groups of all that an update waits for, through other updates, too."""
        found, seen, todo = {graph.group(update)}, {update}, [update]
        while todo:
            for need in graph.needs[todo.pop()]:
                found.add(need.source)
                if need.task.kind == UPDATE and need.task not in seen:
                    seen.add(need.task)
                    todo.append(need.task)
        return found

    return len(groups) > 1 and bool(updates) and all(needed(each) == groups for each in updates)
