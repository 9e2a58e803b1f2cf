"""Memory over the time of a step, as far as the plan records it."""

from collections.abc import Callable, Iterator, Sequence

from shardc.plan.account import Account, Timed
from shardc.plan.decisions import Plan
from shardc.schedule.tasks import FORWARD, Task

Curve = list[tuple[float, float]]  # (seconds, bytes on one device)
_LAST = "BWX"  # kinds of actions that end a stash's life; the last of them counts


def group_of_action(plan: Plan) -> Callable[[str], int]:
    """A function that returns the device group of a printed action."""
    groups = {stage: g for g, group in enumerate(plan.groups) for stage in group.stages}
    num_stages = len(plan.own_stages)
    return lambda action: groups[Task.parse(action).place(num_stages)]


def in_flight(timeline: Sequence[Timed], stage: int) -> Iterator[tuple[float, int, Task]]:
    """(time, microbatches whose forward has begun and whose backward is not done, action) at the
    start of each action of a stage."""
    own = [(each, Task.parse(each.action)) for each in timeline]
    num_stages = 1 + max((task.stage for _, task in own), default=0)
    own = [(each, task) for each, task in own if task.place(num_stages) == stage]
    ends = {task.microbatch: each.end_s for each, task in own if task.kind in _LAST}
    begun: set[int] = set()
    for each, task in own:
        if task.kind == FORWARD:
            begun.add(task.microbatch)
        live = sum(ends.get(number, float("inf")) > each.start_s for number in begun)
        yield each.start_s, live, task


def memory_curve(plan: Plan, account: Account, group: int) -> Curve:
    """Bytes on a device of a group when each of its actions begins.

    State, inputs and results are always live, gradients from the first backward on, and one share
    of the stash per microbatch in flight. Temporaries count while an action runs. The sizes come
    from the stage's peak (`StagePlan.memory`).
    """
    found: list[tuple[float, int, float, int]] = []  # time, stage, bytes that stay, temporaries
    for stage in plan.groups[group].stages:
        memory = plan.stages[stage].memory
        state = memory.total - memory.gradients - memory.stash - memory.temporaries
        moments = list(in_flight(account.timeline, stage))
        most = max((live for _, live, _ in moments), default=0) or 1
        backward = min((s for s, _, task in moments if task.kind in _LAST), default=float("inf"))
        found.append((0.0, stage, float(state), 0))
        for start_s, live, _ in moments:
            gradients = memory.gradients if start_s >= backward else 0
            held = state + gradients + memory.stash * live / most
            found.append((start_s, stage, held, memory.temporaries))
    now: dict[int, float] = {}
    curve: Curve = []
    for start_s, stage, held, temporaries in sorted(found):
        now[stage] = held
        curve.append((start_s, sum(now.values()) + temporaries))
    return curve


def worst_microbatch(account: Account, stage: int, letters: str) -> int | None:
    """The first microbatch in whose action of one of these kinds most are in flight."""
    moments = list(in_flight(account.timeline, stage))
    most = max((live for _, live, task in moments if task.kind in letters), default=0)
    return next(
        (task.microbatch for _, live, task in moments if task.kind in letters and live == most),
        None,
    )
