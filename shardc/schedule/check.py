"""Proves a schedule safe before anything runs: complete, free of deadlock, within its memory."""

from collections import Counter
from collections.abc import Sequence

from shardc.errors import ScheduleError
from shardc.schedule.action import FORWARD, Action, Schedule
from shardc.schedule.work import Work


def check(schedule: Schedule, work: Work, max_activations: Sequence[float] | None = None) -> None:
    """Nothing, if `schedule` does `work` once, can finish, and keeps its memory bound.

    Args:
        max_activations: per device, in microbatches of the device's full share.
    Raises:
        ScheduleError: SHARDC-243 an action is missing, foreign or double; SHARDC-244 the actions
            wait for each other; SHARDC-245 a device holds more activations than `max_activations`.
    """
    _check_complete(schedule, work)
    run_order(schedule, work)
    if max_activations is None:
        return
    for device, peak in enumerate(peak_activations(schedule, work)):
        if peak > max_activations[device]:
            raise ScheduleError(
                f"device {device} holds the activations of {peak:g} microbatches at once,"
                f" but may hold {max_activations[device]:g}",
                help="take a schedule that runs backwards earlier, such as 1f1b",
                code="SHARDC-245",
            )


def run_order(schedule: Schedule, work: Work) -> tuple[Action, ...]:
    """All actions in one order that keeps every dependence and every device's own order.

    It goes round the devices, one action each as far as it can, so that a single process which
    dispatches in this order keeps all of them busy.

    Raises:
        ScheduleError: SHARDC-244, the actions wait for each other.
    """
    position = [0] * len(schedule)
    done: list[Action] = []
    finished: set[Action] = set()
    num_actions = sum(map(len, schedule))
    while len(done) < num_actions:
        started = []
        for device, actions in enumerate(schedule):
            if position[device] == len(actions):
                continue
            action = actions[position[device]]
            if finished.issuperset(work.dependences(action)):
                started.append(action)
                position[device] += 1
        if not started:
            raise _deadlock(schedule, work, position, finished)
        done += started
        finished.update(started)
    return tuple(done)


def peak_activations(schedule: Schedule, work: Work) -> tuple[float, ...]:
    """Per device the most activations held at once, in microbatches of its full share.

    Activations live from a stage's F to its last backward action of that microbatch (or to the end
    of F where there is no backward). A device with v stages holds 1/v of its share for each.
    """
    peaks = []
    for actions in schedule:
        num_chunks = max(1, len({action.stage for action in actions}))
        held = peak = 0
        for action in actions:
            held += action.kind == FORWARD
            peak = max(peak, held)
            held -= action.kind == work.releasing_kind
        peaks.append(peak / num_chunks)
    return tuple(peaks)


def _check_complete(schedule: Schedule, work: Work) -> None:
    """ScheduleError (SHARDC-243) unless the schedule holds every action of `work` once."""
    found = Counter(action for actions in schedule for action in actions)
    wanted = Counter(work.actions())
    for actions, complaint in (
        (wanted - found, "does not contain"),
        (found - wanted, "must not contain, or contains twice,"),
    ):
        if actions:
            some = ", ".join(str(action) for action in list(actions)[:8])
            raise ScheduleError(
                f"the schedule {complaint} {some}",
                help=f"a step of {work.num_stages} stages and {work.num_microbatches} microbatches"
                " runs each action once",
                code="SHARDC-243",
            )


def _deadlock(
    schedule: Schedule, work: Work, position: list[int], finished: set[Action]
) -> ScheduleError:
    """Says which action each stuck device is at, and what it waits for."""
    waits = []
    for device, actions in enumerate(schedule):
        if position[device] < len(actions):
            action = actions[position[device]]
            missing = next(d for d in work.dependences(action) if d not in finished)
            waits.append(f"{action} (device {device}) for {missing}")
    return ScheduleError(
        "the schedule cannot finish: " + ", ".join(waits[:4]) + " wait forever",
        help="move the awaited action before the one that waits",
        code="SHARDC-244",
    )
