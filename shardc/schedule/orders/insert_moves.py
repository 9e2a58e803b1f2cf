"""Puts moves into the lanes of a family: gathers and reduce-scatters, offloads and loads."""

from collections.abc import Sequence

from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    GATHER,
    LOAD,
    OFFLOAD,
    REDUCE,
    WEIGHT,
    WHOLE_BACKWARD,
    Amount,
    Task,
)
from shardc.schedule.times import Durations
from shardc.schedule.work import Work

RESIDENT = 2  # stages whose whole parameters, or whose whole gradients, a device group holds

Lane = Sequence[Task]
Place = tuple[int, int]  # stage and replica


def insert_moves(lanes: Sequence[Lane], work: Work, durations: Durations) -> list[list[Task]]:
    """The lanes with the moves that `work` asks for."""
    found = [list(lane) for lane in lanes]
    if work.offloads and work.backward:
        found = [_offloaded(lane, work, durations) for lane in found]
    if work.gathers:
        found = [_gathered(lane, work) for lane in found]
    return found


def _gathered(lane: Lane, work: Work) -> list[Task]:
    """G as soon as there is room for the parameters of a stage, which replace those used longest
    ago; R when the gradients of a stage give way to others."""
    kinds = {FORWARD, BACKWARD, WHOLE_BACKWARD}
    gradients = {WEIGHT, WHOLE_BACKWARD} if work.split_backward else {BACKWARD}
    behind: dict[int, list[Task]] = {}  # position in the lane -> moves behind it
    count: dict[tuple[str, Place], int] = {}

    def move(kind: str, place: Place) -> Task:
        number = count.get((kind, place), 0)
        count[kind, place] = number + 1
        return Task(place[0], kind, number, 0, place[1])

    for place, _, last in _stays(lane, gradients if work.backward else set()):
        behind.setdefault(last, []).append(move(REDUCE, place))
    for place, free, _ in _stays(lane, kinds):
        behind.setdefault(free, []).append(move(GATHER, place))
    found = list(behind.get(-1, ()))
    for position, task in enumerate(lane):
        found += [task, *behind.get(position, ())]
    return found


def _stays(lane: Lane, kinds: set[str]) -> list[tuple[Place, int, int]]:
    """For each stay of a place among the `RESIDENT` ones that tasks of these kinds use: the place,
    the position after which there is room for it, that of its last use. Sorted by first use."""
    resident: dict[Place, tuple[int, int, int]] = {}  # by last use: (first use, free, last use)
    free = [-1] * RESIDENT
    found = []
    for position, task in enumerate(lane):
        if task.kind not in kinds:
            continue
        place = task.stage, task.replica
        if place in resident:
            first, began, _ = resident.pop(place)
        else:
            if len(resident) == RESIDENT:
                oldest = next(iter(resident))
                found.append((oldest, *resident.pop(oldest)))
                free.append(found[-1][-1])
            first, began = position, free.pop(0)
        resident[place] = first, began, position
    found += [(place, *stay) for place, stay in resident.items()]
    return [(place, began, last) for place, _, began, last in sorted(found, key=lambda s: s[1])]


def _offloaded(lane: Lane, work: Work, durations: Durations) -> list[Task]:
    """O behind each F of an offloaded chunk, and L in time for its backward, where both fit in.

    Moves one way take turns. An L begins when the computation in front of it and the L before it
    have ended, so it is put where they leave it time.
    """
    ends: list[Amount] = []
    now: Amount = 0
    for task in lane:
        now += durations(task)
        ends.append(now)
    backward = {
        task._replace(kind=FORWARD): i
        for i, task in enumerate(lane)
        if task.kind in (BACKWARD, WHOLE_BACKWARD)
    }
    pairs: list[tuple[int, int, Task]] = []  # F, backward
    free: Amount = 0
    for i, task in enumerate(lane):
        if task.kind != FORWARD or task.stage // work.num_groups not in work.offloads:
            continue
        done = max(free, ends[i]) + durations(task._replace(kind=OFFLOAD))
        starts = ends[backward[task] - 1]
        if done + durations(task._replace(kind=LOAD)) <= starts:
            free = done
            pairs.append((i, backward[task], task))
    behind: dict[int, list[Task]] = {}
    for i, _, task in pairs:
        behind.setdefault(i, []).append(task._replace(kind=OFFLOAD))
    latest: Amount = now
    for i, before, task in sorted(pairs, key=lambda pair: -pair[1]):
        latest = min(latest, ends[before - 1]) - durations(task._replace(kind=LOAD))
        # Behind the last task that ends by then, and at the earliest behind its own O.
        at = max(i, next((n for n in range(before - 1, i, -1) if ends[n] <= latest), i))
        behind.setdefault(at, []).append(task._replace(kind=LOAD))
    found: list[Task] = []
    for position, task in enumerate(lane):
        found += [task, *sorted(behind.get(position, ()), key=lambda t: (t.kind == LOAD, t[2]))]
    return found
