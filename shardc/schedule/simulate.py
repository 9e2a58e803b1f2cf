"""Simulates a schedule: when each task starts and ends, and how much time is idle."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from typing import Any, TypedDict, Unpack

from shardc.schedule.check import deadlock, peaks
from shardc.schedule.tasks import LINKS, Amount, Need, Schedule, Task, TaskGraph, all_scaled

Link = Callable[[int, int], Sequence[object]]
"""(source group, target group) -> the links that a transfer between them takes; transfers over one
link take turns."""


class Ways(TypedDict, total=False):
    """How a simulation takes transfers and moves.

    Attributes:
        overlap: a transfer overlaps with compute and delays only its reader (the default); False:
            the sender waits, too, until its values are sent.
        link: None: transfers never wait for each other.
        moves_overlap: False: moves take their turn among the other tasks of the lane.
    """

    overlap: bool
    link: Link | None
    moves_overlap: bool


_Sent = tuple[int, Need, int]  # a reader in another group, and the number of the transfer


@dataclass(frozen=True)
class TimedAction:
    """A task with its start and end; 0 is the start of the step.

    Attributes:
        link: of the device, if the task is a move: a value of `LINKS`.
    """

    action: Task
    device: int
    start_s: Amount
    end_s: Amount

    @property
    def link(self) -> str:
        return LINKS.get(self.action.kind, "")


@dataclass(frozen=True)
class Simulation:
    """The cost of a schedule. Moves are not work: a device that only waits for one is idle.

    Attributes:
        makespan_s: end of the last task.
        bubble_ratio: idle device time over all device time, 0 for an empty step.
        span_s: the longest time from a device group's first start to its last end (the cost
            in the zero-bubble papers; the step time if groups start the next step
            without waiting for each other).
        span_bubble_ratio: idle share of that span, averaged over the device groups.
        peak_activations: per device group, in the unit of the graph's buffers (microbatches of the
            group's full share if the graph was made without a program).
        timeline: the tasks in order of their starts.
    """

    makespan_s: Amount
    bubble_ratio: Amount
    span_s: Amount
    span_bubble_ratio: Amount
    peak_activations: tuple[Amount, ...]
    timeline: tuple[TimedAction, ...]


def simulate(
    schedule: Schedule,
    graph: TaskGraph,
    duration_s: Callable[[Task], Amount],
    transfer_s: Amount | Callable[[Need], Amount] = 0,
    **ways: Unpack[Ways],
) -> Simulation:
    """Starts every task as soon as its device group is free and its needs have arrived.

    Moves run on links of the group, beside its other tasks.

    Args:
        schedule: complete (see `check`).
        transfer_s: of every value sent to another device group, or of each need.
    Returns:
        Exact numbers if all times are integers or fractions.
    Raises:
        ScheduleError: SHARDC-244, the tasks wait for each other.
    """
    return _summary(schedule, graph, _timed(schedule, graph, duration_s, transfer_s, ways))


def lengths(
    schedule: Schedule,
    graph: TaskGraph,
    duration_s: Callable[[Task], Amount],
    transfer_s: Amount | Callable[[Need], Amount] = 0,
    **ways: Unpack[Ways],
) -> tuple[Amount, Amount]:
    """(span_s, makespan_s) of `simulate`, without the cost of its other results."""
    times = _timed(schedule, graph, duration_s, transfer_s, ways)
    makespan, span = _extent(times)
    return times.exact(span), times.exact(makespan)


def ends(
    schedule: Schedule,
    graph: TaskGraph,
    duration_s: Callable[[Task], Amount],
    transfer_s: Amount | Callable[[Need], Amount] = 0,
    **ways: Unpack[Ways],
) -> dict[Task, Amount]:
    """When each task ends, as in `simulate`."""
    times = _timed(schedule, graph, duration_s, transfer_s, ways)
    return {task: times.exact(times.end[i]) for i, task in enumerate(times.tasks)}


@dataclass(frozen=True)
class _Times:
    """Start and end of every task, by its position in `tasks`, times `scale`; `lanes` has the
    positions of each lane."""

    tasks: list[Task]
    lanes: list[list[int]]
    takes: list[Amount]
    start: dict[int, Amount]
    end: dict[int, Amount]
    scale: int

    def exact(self, value: Any) -> Amount:
        return value if self.scale == 1 else Fraction(value, self.scale)


_Rows = tuple[list[list[Task]], list[int], list[tuple[Task, Task]]]


def _rows(schedule: Schedule) -> _Rows:
    """What takes turns: the tasks of each lane and, by link, its moves. With the lane of each row,
    and for each move the task in front of it in the lane."""
    rows: list[list[Task]] = []
    lanes: list[int] = []
    fronts: list[tuple[Task, Task]] = []
    for number, lane in enumerate(schedule.lanes):
        of_link: dict[str, list[Task]] = {"": []}
        for task in lane:
            link = LINKS.get(task.kind, "")
            if link and of_link[""]:
                fronts.append((of_link[""][-1], task))
            of_link.setdefault(link, []).append(task)
        rows += of_link.values()
        lanes += [number] * len(of_link)
    return rows, lanes, fronts


def _lanes(schedule: Schedule) -> _Rows:
    """The same where moves take turns with the other tasks of their lane."""
    return [list(lane) for lane in schedule.lanes], list(range(len(schedule.lanes))), []


def _timed(
    schedule: Schedule,
    graph: TaskGraph,
    duration_s: Callable[[Task], Amount],
    transfer_s: Amount | Callable[[Need], Amount],
    ways: Ways,
) -> _Times:
    """The tasks of a schedule, timed."""
    send_s = transfer_s if callable(transfer_s) else (lambda need: transfer_s)
    overlap, link = ways.get("overlap", True), ways.get("link")
    beside = ways.get("moves_overlap", True)
    rows, lanes, fronts = _rows(schedule) if beside else _lanes(schedule)
    tasks = [task for row in rows for task in row]
    index = {task: i for i, task in enumerate(tasks)}
    row_of = [number for number, row in enumerate(rows) for _ in row]
    first = [0, *itertools.accumulate(map(len, rows))]
    # Of each task: who reads its result on the spot, and who waits until it is sent. A task of the
    # same row that comes later does not count, because it waits for its turn.
    here: list[list[int]] = [[] for _ in tasks]
    elsewhere: list[list[_Sent]] = [[] for _ in tasks]
    pending = [0] * len(tasks)
    sends: list[Amount] = []
    for i, task in enumerate(tasks):
        for need in graph.needs[task]:
            needed = index[need.task]
            if need.source != need.target and need.num_bytes:
                elsewhere[needed].append((i, need, len(sends)))
                sends.append(send_s(need))
            elif first[row_of[i]] <= needed < i:
                continue
            else:
                here[needed].append(i)
            pending[i] += 1
    for front, move in fronts:
        here[index[front]].append(index[move])
        pending[index[move]] += 1
    times, scale = all_scaled([*map(duration_s, tasks), *sends])
    takes, sends = times[: len(tasks)], times[len(tasks) :]
    start, end = _run(
        first, takes, row_of, (here, elsewhere, sends), pending, overlap=overlap, link=link
    )
    if len(end) < len(tasks):
        finished = {tasks[i] for i in end}
        position = [_stuck(lane, graph, finished) for lane in schedule.lanes]
        raise deadlock(schedule, graph, position, finished)
    own: list[list[int]] = [[] for _ in schedule.lanes]
    for i, row in enumerate(row_of):
        own[lanes[row]].append(i)
    return _Times(tasks, own, takes, start, end, scale)


def _stuck(lane: Sequence[Task], graph: TaskGraph, finished: set[Task]) -> int:
    """Position of the first task of a lane that waits for another; the length if there is none."""
    waits = (
        i
        for i, task in enumerate(lane)
        if task not in finished and any(need.task not in finished for need in graph.needs[task])
    )
    return next(waits, len(lane))


def _run(
    first: Sequence[int],
    takes: Sequence[Amount],
    row_of: Sequence[int],
    readers: tuple[Sequence[Sequence[int]], Sequence[Sequence[_Sent]], Sequence[Amount]],
    pending: list[int],
    *,
    overlap: bool,
    link: Link | None,
) -> tuple[dict[int, Amount], dict[int, Amount]]:
    """Start and end of every task that can run, by its position in the concatenated rows.

    Args:
        first: the position of each row's first task, and the number of tasks.
        readers: of each task: on the spot, and elsewhere; the time of each transfer.
    """
    here, elsewhere, sends = readers
    head, stop = list(first[:-1]), first[1:]
    free_s: list[Amount] = [0] * len(head)
    arrived: list[Amount] = [0] * len(takes)
    link_free_s: dict[object, Amount] = {}
    start: dict[int, Amount] = {}
    end: dict[int, Amount] = {}
    events: list[tuple[Amount, int]] = []

    def begin(row: int) -> None:
        i = head[row]
        if i < stop[row] and not pending[i]:
            head[row] += 1
            free, arrival = free_s[row], arrived[i]
            begins = free if free > arrival else arrival
            start[i] = begins
            ends = begins + takes[i]
            heappush(events, (ends, i))

    for row in range(len(head)):
        begin(row)
    while events:
        now, i = heappop(events)
        end[i] = now
        row = row_of[i]
        busy_until: Amount = now
        sent: dict[int, Amount] = {}
        touched = [row]
        for reader, need, number in elsewhere[i]:
            if need.target not in sent:
                begins = busy_until if not overlap else now
                ways = link(need.source, need.target) if link is not None else ()
                for way in ways:
                    begins = max(begins, link_free_s.get(way, 0))
                sent[need.target] = begins + sends[number]
                link_free_s.update(dict.fromkeys(ways, sent[need.target]))
                if not overlap:
                    busy_until = sent[need.target]
            arrived[reader] = max(arrived[reader], sent[need.target])
            pending[reader] -= 1
            if not pending[reader] and row_of[reader] != row:
                touched.append(row_of[reader])
        for reader in here[i]:
            if now > arrived[reader]:
                arrived[reader] = now
            pending[reader] -= 1
            if not pending[reader] and row_of[reader] != row:
                touched.append(row_of[reader])
        free_s[row] = busy_until
        for each in touched:
            if head[each] == first[each] or head[each] - 1 in end:
                begin(each)
    return start, end


def _extent(times: _Times) -> tuple[Amount, Amount]:
    """Makespan and span, scaled; tasks that take no time are ignored."""
    makespan: Amount = 0
    span: Amount = 0
    for lane in times.lanes:
        lasting = [i for i in lane if times.takes[i]]
        if lasting:
            last = max(times.end[i] for i in lasting)
            makespan = max(makespan, last)
            span = max(span, last - min(times.start[i] for i in lasting))
    return makespan, span


def _summary(schedule: Schedule, graph: TaskGraph, times: _Times) -> Simulation:
    tasks, start, end = times.tasks, times.start, times.end
    exact = cache(times.exact)  # many tasks start when another ends
    makespan, span = _extent(times)
    timeline = []
    for group, lane in zip(schedule.groups, times.lanes, strict=True):
        timeline += [
            (start[i], end[i], group, TimedAction(tasks[i], group, exact(start[i]), exact(end[i])))
            for i in lane
        ]
    timeline.sort(key=lambda entry: entry[:3])
    busy = sum(
        takes for task, takes in zip(tasks, times.takes, strict=True) if task.kind not in LINKS
    )

    def idle_share(length: Amount) -> Amount:
        total = length * len(schedule.lanes)
        if not total:
            return 0
        idle = max(total - busy, 0)  # float sums may differ in the last place
        return Fraction(idle) / total if isinstance(idle, int) else idle / total

    return Simulation(
        makespan_s=exact(makespan),
        bubble_ratio=idle_share(makespan),
        span_s=exact(span),
        span_bubble_ratio=idle_share(span),
        peak_activations=peaks(schedule, graph),
        timeline=tuple(entry[3] for entry in timeline),
    )
