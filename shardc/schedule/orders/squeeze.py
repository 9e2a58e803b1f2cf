"""Squeezes the gaps out of a pattern of slots, within a memory limit.

A pattern that repeats per microbatch leaves gaps at its start and at its end. Slot by slot, each
task moves to the earliest gap of its group that comes after what it needs.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from shardc.schedule.tasks import FORWARD, WEIGHT, Task, TaskGraph

Lane = Sequence[tuple[int, Task]]
"""(first slot, task) of one group."""


def squeeze(
    slots: Mapping[Task, int],
    graph: TaskGraph,
    widths: Mapping[str, int],
    *,
    room: int | None = None,
    start: int = 0,
    still: range = range(0),
) -> dict[Task, int]:
    """Earlier slots for the tasks of a pattern; no task moves later.

    Args:
        slots: of every task of `graph`, each after what it needs.
        widths: slots that a task of each kind takes.
        room: forwards whose activations a group may hold; a group that exceeds it in the pattern
            itself gets no more. None: no limit.
        still: tasks in these slots do not move, for example where the pattern has no gaps.
        start: no task before this slot moves, and none moves before it.
    """
    end = max(slot + widths[task.kind] for task, slot in slots.items())
    busy = [bytearray(end) for _ in range(graph.num_groups)]
    changes = [[0] * (end + 1) for _ in range(graph.num_groups)]
    last_user = {buffer.maker: buffer.users[-1] for buffer in graph.buffers}
    for task, slot in slots.items():
        group = graph.group(task)
        _add(busy[group], slot, slot + widths[task.kind], 1)
        if task.kind == FORWARD:
            user = last_user[task]
            changes[group][slot] += 1
            changes[group][slots[user] + widths[user.kind]] -= 1
    held = [list(accumulate(each)) for each in changes]
    frees = set(last_user.values())
    found: dict[Task, int] = {}
    ends: dict[Task, int] = {}
    for task, slot in sorted(slots.items(), key=lambda item: (item[1], item[0].kind != FORWARD)):
        group, width = graph.group(task), widths[task.kind]
        first = slot
        if slot >= start and slot not in still:
            needed = [ends[need.task] for need in graph.needs[task]]
            first = min(slot, max(start, *needed, 0))
        if first < slot:
            _add(busy[group], slot, slot + width, -1)
            first = _vacant(busy[group], first, slot, width)
            if first < slot and task.kind == FORWARD and room is not None:
                full = (i for i in range(slot - 1, first - 1, -1) if held[group][i] >= room)
                first = _vacant(busy[group], max(first, next(full, -1) + 1), slot, width)
            _add(busy[group], first, first + width, 1)
            if task.kind == FORWARD:
                _add(held[group], first, slot, 1)
            elif task in frees:
                _add(held[group], first + width, slot + width, -1)
        found[task], ends[task] = first, first + width
    return found


def with_weights(lane: Lane) -> list[tuple[int, Task]]:
    """A lane of F and B of one slot each, with every B's W in the first free slot after it."""
    taken = {slot for slot, _ in lane}
    found = list(lane)
    free = 0
    for slot, task in sorted(lane):
        if task.kind != FORWARD:
            free = max(free, slot + 1)
            while free in taken:
                free += 1
            found.append((free, task._replace(kind=WEIGHT)))
            free += 1
    return sorted(found)


def _vacant(busy: bytearray, first: int, last: int, width: int) -> int:
    """The first of `width` slots without a task, from `first` on, and at most `last`."""
    found = busy.find(bytes(width), first, last + width)
    return last if found < 0 else found


def _add(row: bytearray | list[int], first: int, end: int, amount: int) -> None:
    for i in range(first, end):
        row[i] += amount
