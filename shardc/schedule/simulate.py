"""Runs a schedule on paper: when each action starts and ends, and how much time is idle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.schedule.action import BACKWARD, FORWARD, PROLOGUE, UPDATE, WEIGHT, Action, Schedule
from shardc.schedule.check import peak_activations, run_order
from shardc.schedule.work import Work


@dataclass(frozen=True)
class Times:
    """How long the actions of one stage take, in seconds or any one unit.

    Attributes:
        forward_s: F of one microbatch.
        backward_s: input-gradient backward of one microbatch.
        weight_s: weight-gradient backward; where a schedule does not split it, B takes both.
        prologue_s: P.
        update_s: each round of U.
    """

    forward_s: float = 1.0
    backward_s: float = 1.0
    weight_s: float = 1.0
    prologue_s: float = 0.0
    update_s: float = 0.0

    def of(self, kind: str, work: Work) -> float:
        """Seconds of one action of `kind`."""
        fused = 0.0 if work.split_backward else self.weight_s
        return {
            PROLOGUE: self.prologue_s,
            FORWARD: self.forward_s,
            BACKWARD: self.backward_s + fused,
            WEIGHT: self.weight_s,
            UPDATE: self.update_s,
        }[kind]


@dataclass(frozen=True)
class TimedAction:
    """An action and when it runs; 0 is the start of the step."""

    action: Action
    device: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Simulation:
    """What a schedule costs.

    Attributes:
        makespan_s: end of the last action.
        bubble_ratio: idle device time over all device time, 0.0 for an empty step.
        peak_activations: per device, in microbatches of the device's full share.
        timeline: the actions in the order in which they start.
    """

    makespan_s: float
    bubble_ratio: float
    peak_activations: tuple[float, ...]
    timeline: tuple[TimedAction, ...]


def simulate(
    schedule: Schedule,
    work: Work,
    times: Times | Sequence[Times] | None = None,
    transfer_s: float | Callable[[int, int], float] = 0.0,
) -> Simulation:
    """Every action starts as soon as its device is free and what it needs has arrived.

    Args:
        schedule: complete (see `check`).
        times: of every stage, or one per stage; None takes F = B = W = 1.
        transfer_s: added wherever an action needs the result of another device, or a function of
            both devices; it delays the receiver only (transfers overlap with compute and with each
            other).
    Raises:
        ScheduleError: SHARDC-244, the actions wait for each other.
    """
    times = times or Times()
    per_stage = [times] * work.num_stages if isinstance(times, Times) else list(times)
    assert len(per_stage) == work.num_stages, "one Times per stage"

    def send_s(source: int, target: int) -> float:
        if source == target:
            return 0.0
        return transfer_s(source, target) if callable(transfer_s) else transfer_s

    device_of = {action: d for d, actions in enumerate(schedule) for action in actions}
    free_s = [0.0] * len(schedule)
    busy_s = 0.0
    timed: dict[Action, TimedAction] = {}
    for action in run_order(schedule, work):
        device = device_of[action]
        arrivals = [
            timed[needed].end_s + send_s(timed[needed].device, device)
            for needed in work.dependences(action)
        ]
        start_s = max([free_s[device], *arrivals])
        duration_s = per_stage[action.stage].of(action.kind, work)
        free_s[device] = start_s + duration_s
        busy_s += duration_s
        timed[action] = TimedAction(action, device, start_s, free_s[device])
    makespan_s = max(free_s)
    all_s = makespan_s * len(schedule)
    return Simulation(
        makespan_s=makespan_s,
        bubble_ratio=(all_s - busy_s) / all_s if all_s else 0.0,
        peak_activations=peak_activations(schedule, work),
        timeline=tuple(sorted(timed.values(), key=lambda t: (t.start_s, t.end_s, t.device))),
    )
