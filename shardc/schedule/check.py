"""Proves a schedule safe before it runs: complete, free of deadlock, within its memory."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from shardc.errors import ScheduleError
from shardc.schedule.group_instructions import check_instructions, instructions_of
from shardc.schedule.tasks import (
    Amount,
    Buffer,
    Schedule,
    Task,
    TaskGraph,
    common_scale,
    scaled,
)


def check(
    schedule: Schedule, graph: TaskGraph, max_activations: Sequence[Amount] | None = None
) -> None:
    """Raises unless `schedule` runs every task of `graph` once, terminates, and fits into memory.

    Each lane is lowered to the instructions of its device group (run, send, receive, free), and
    these are checked under blocking sends: no deadlock, and each buffer is freed once,
    after its last use.

    Args:
        max_activations: per device group, in the unit of the graph's buffers.
    Raises:
        ScheduleError: SHARDC-243 a task is missing, unknown, repeated or in another group's lane;
            SHARDC-244 the tasks wait for each other; SHARDC-245 a group holds more than
            `max_activations`; SHARDC-246 and SHARDC-247 as in `check_instructions`.
    """
    check_complete(schedule, graph)
    order = run_order(schedule, graph)
    check_instructions(instructions_of(schedule, graph, order), graph)
    if max_activations is None:
        return
    for group, peak in enumerate(peaks(schedule, graph)):
        if peak > max_activations[group]:
            raise ScheduleError(
                f"device {group} holds the activations of {float(peak):g} microbatches at once,"
                f" but may hold {float(max_activations[group]):g}",
                where=_peak_cell(schedule, graph, group, max_activations[group]),
                help="take a schedule that runs backwards earlier, such as 1f1b",
                code="SHARDC-245",
            )


def run_order(schedule: Schedule, graph: TaskGraph) -> tuple[Task, ...]:
    """All tasks in one order that respects every dependence and every lane's own order.

    It cycles through the lanes, taking one task from each if possible, so that a single process
    dispatching in this order keeps all of them busy. `shardc.runtime.tape.order` does the same.

    Raises:
        ScheduleError: SHARDC-244, the tasks wait for each other.
    """
    position = [0] * len(schedule.lanes)
    done: list[Task] = []
    finished: set[Task] = set()
    num_tasks = sum(map(len, schedule.lanes))
    while len(done) < num_tasks:
        before = len(done)
        for row, lane in enumerate(schedule.lanes):
            if position[row] == len(lane):
                continue
            task = lane[position[row]]
            if all(need.task in finished for need in graph.needs[task]):
                done.append(task)
                finished.add(task)
                position[row] += 1
        if len(done) == before:
            raise deadlock(schedule, graph, position, finished)
    return tuple(done)


def peaks(schedule: Schedule, graph: TaskGraph) -> tuple[Amount, ...]:
    """For each device group, the most that its buffers hold at once, in their own unit.

    A buffer lives from the start of its maker, or from the arrival of its value from another
    group, to the end of its last user in the lane.

    Raises:
        ScheduleError: SHARDC-244, the tasks wait for each other.
    """
    scale = common_scale({buffer.num_bytes for buffer in graph.buffers})
    arrivals = _arrivals(schedule, graph)
    found = []
    for group in range(graph.num_groups):
        peak: Amount = 0
        held: Amount = 0
        for _, buffer, is_made in _changes(schedule, graph, group, arrivals):
            num_bytes = scaled(buffer.num_bytes, scale)
            held += num_bytes if is_made else -num_bytes
            peak = max(peak, held)
        found.append(peak if isinstance(peak, float) else Fraction(peak, scale))
    return tuple(found)


Arrivals = dict[int, list[tuple[int, Buffer]]]
"""For each group, (number of earlier tasks in its lane, buffer) of values from other groups."""


def _arrivals(schedule: Schedule, graph: TaskGraph) -> Arrivals:
    """Values are received as soon as they exist, in the order in which one process dispatches
    all tasks."""
    found: Arrivals = {}
    if all(buffer.group == graph.group(buffer.maker) for buffer in graph.buffers):
        return found
    ran = [0] * graph.num_groups
    for task in run_order(schedule, graph):
        own = graph.group(task)
        ran[own] += 1
        for buffer in map(graph.buffers.__getitem__, graph.made_by.get(task, ())):
            if buffer.group != own:
                found.setdefault(buffer.group, []).append((ran[buffer.group], buffer))
    return found


def _changes(
    schedule: Schedule, graph: TaskGraph, group: int, arrivals: Arrivals
) -> list[tuple[int, Buffer, bool]]:
    """The allocations and frees of a group's lane: (position, buffer, whether it is allocated)."""
    lane = schedule.lanes[schedule.groups.index(group)] if group in schedule.groups else ()
    position = {task: i for i, task in enumerate(lane)}
    made = [
        (2 * i, i, buffer)
        for i, task in enumerate(lane)
        for buffer in map(graph.buffers.__getitem__, graph.made_by.get(task, ()))
        if buffer.group == group
    ]
    # A value arrives after the previous task has freed its buffers.
    made += [(2 * i - 1, i, buffer) for i, buffer in arrivals.get(group, ())]
    changes = []
    for time, i, buffer in made:
        last = max((position.get(user, -1) for user in buffer.users), default=-1)
        freed = last if last >= 0 or buffer.users else i
        changes.append((time, i, buffer, True))
        changes.append((2 * (freed if freed >= 0 else len(lane)) + 1, freed, buffer, False))
    changes.sort(key=lambda change: (change[0], change[3]))
    return [(i, buffer, is_made) for _, i, buffer, is_made in changes]


def _held(schedule: Schedule, graph: TaskGraph, group: int) -> list[tuple[int, Amount]]:
    """(position in the lane, amount held from there on) for every change of a group."""
    held: Amount = 0
    found = []
    for position, buffer, is_made in _changes(schedule, graph, group, _arrivals(schedule, graph)):
        held += buffer.num_bytes if is_made else -buffer.num_bytes
        found.append((position, held))
    return found


def _peak_cell(schedule: Schedule, graph: TaskGraph, group: int, limit: Amount) -> str:
    """The first cell at which a group exceeds its limit."""
    row = schedule.groups.index(group)
    cell = next(i for i, held in _held(schedule, graph, group) if held > limit)
    return schedule.where(row, cell)


def check_complete(schedule: Schedule, graph: TaskGraph) -> None:
    """ScheduleError (SHARDC-243) unless every task occurs once, in the lane of its group."""
    found = Counter(task for lane in schedule.lanes for task in lane)
    missing = [task for task in graph.tasks if task not in found]
    if missing:
        raise ScheduleError(
            "the schedule does not contain " + ", ".join(map(str, missing[:8])),
            where=schedule.where_row(schedule.groups.index(graph.group(missing[0]))),
            help="a step runs each of its actions once: add the missing ones to that row and the"
            " other rows",
            code="SHARDC-243",
        )
    for row, lane in enumerate(schedule.lanes):
        seen: set[Task] = set()
        for position, task in enumerate(lane):
            if task not in graph.needs or task in seen:
                wrong = "contains twice" if task in seen else "must not contain"
                raise ScheduleError(
                    f"the schedule {wrong} {task}",
                    where=schedule.where(row, position),
                    help="a step runs each of its actions once: take this one out",
                    code="SHARDC-243",
                )
            seen.add(task)
            if graph.group(task) != schedule.groups[row]:
                raise ScheduleError(
                    f"{task} is in the lane of device {schedule.groups[row]}, but its stage"
                    f" is on device {graph.group(task)}",
                    where=schedule.where(row, position),
                    help=f"move it to row {graph.group(task)}",
                    code="SHARDC-243",
                )


def deadlock(
    schedule: Schedule, graph: TaskGraph, position: Sequence[int], finished: set[Task]
) -> ScheduleError:
    """The error that names the task each stuck lane has reached, and what it waits for, those
    first that wait for each other in a circle."""
    row_of = {task: row for row, lane in enumerate(schedule.lanes) for task in lane}
    missing: dict[int, Task] = {}  # of each stuck lane
    for row, lane in enumerate(schedule.lanes):
        if position[row] < len(lane):
            needs = graph.needs[lane[position[row]]]
            missing[row] = next(n.task for n in needs if n.task not in finished)
    way = [next(iter(missing))]
    while (row := row_of.get(missing[way[-1]], way[-1])) not in way:
        way.append(row)
    circle = way[way.index(row) :]
    rows = [*circle, *(each for each in missing if each not in circle)]
    waits = [
        f"{schedule.lanes[each][position[each]]} (device {schedule.groups[each]}) for"
        f" {missing[each]}"
        for each in rows
    ]
    return ScheduleError(
        "the schedule cannot finish: " + ", ".join(waits[:4]) + " wait forever",
        where=schedule.where(row, position[row]),
        help="move the awaited action before the one that waits",
        code="SHARDC-244",
    )
