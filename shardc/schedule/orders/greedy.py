"""List scheduling: a free group runs the most urgent task that is ready."""

from collections.abc import Callable
from heapq import heappop, heappush

from shardc.schedule.family import Costs
from shardc.schedule.tasks import FORWARD, UPDATE, Amount, Task
from shardc.schedule.work import Placement, Work


def greedy(
    work: Work,
    placement: Placement,
    costs: Costs,
    urgency: Callable[[Task], tuple[int, ...]],
    limit: Amount | None = None,
) -> list[list[Task]]:
    """Lanes of F and (whole) B, in the order in which free groups run them.

    Args:
        urgency: the smallest goes first.
        limit: forwards that a group may be ahead of its backwards, in microbatches; None: any.
    """
    graph = work.graph(placement)
    duration = costs.durations(work)
    tasks = [task for task in graph.tasks if task.kind not in ("P", UPDATE)]
    pending = {task: sum(n.task.kind != "P" for n in graph.needs[task]) for task in tasks}
    readers: dict[Task, list[tuple[Task, Amount]]] = {}
    for task in tasks:
        for need in graph.needs[task]:
            readers.setdefault(need.task, []).append((task, costs.send_s(need)))
    lanes: list[list[Task]] = [[] for _ in range(work.num_groups)]
    arrives: dict[Task, Amount] = dict.fromkeys(tasks, 0)
    ready: list[list[Task]] = [[] for _ in lanes]
    free_at: list[Amount] = [0] * len(lanes)
    held: list[Amount] = [0] * len(lanes)
    events: list[tuple[Amount, int, Task | tuple[()]]] = []
    for task in tasks:
        if not pending[task]:
            ready[graph.group(task)].append(task)
    for group in range(len(lanes)):
        heappush(events, (0, group, ()))
    while events:
        now = events[0][0]
        woken: set[int] = set()
        while events and events[0][0] == now:  # process all ends at this time before choosing
            _, group, ended = heappop(events)
            woken.add(group)
            for reader, send_s in readers.get(ended, ()) if isinstance(ended, Task) else ():
                other = graph.group(reader)
                arrives[reader] = max(arrives[reader], now + send_s)
                pending[reader] -= 1
                if not pending[reader]:
                    ready[other].append(reader)
                    heappush(events, (arrives[reader], other, ()))
        for each in sorted(woken):
            if free_at[each] > now:
                continue
            candidates = [
                task
                for task in ready[each]
                if arrives[task] <= now
                and (task.kind != FORWARD or limit is None or held[each] + work.share <= limit)
            ]
            if not candidates:
                continue
            task = min(candidates, key=urgency)
            ready[each].remove(task)
            lanes[each].append(task)
            held[each] += work.share if task.kind == FORWARD else -work.share
            free_at[each] = now + duration(task)
            heappush(events, (free_at[each], each, task))
    return lanes
