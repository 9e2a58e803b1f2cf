"""A glance at a few microbatches tells what does not fit, and what takes far too long."""

import pytest

from shardc.planner.budget import BUDGET
from shardc.planner.schedules.simulated_rounds import Rounds, Simulated
from shardc.schedule.check import peaks
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, ScheduleFamily
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import Task
from shardc.schedule.work import Work

GROUPS = 4
FAMILIES = [each for each in built_in().values() if not (each.any_placement or each.moves)]


def rounds_of(family: ScheduleFamily, rounds: int, transfer_s: float = 1.0) -> Rounds:
    """The schedule with tasks that take longer on some groups; a microbatch in flight counts a
    byte."""
    chunks = family.chunks[0] if family.chunks else 2
    base = Work(GROUPS, rounds * GROUPS, prologue=False, update_rounds=0)
    work = family.work(base, chunks)
    takes = {"F": 10.0, "B": 10.0 if family.split_backward else 20.0, "W": 10.0, "X": 20.0}

    def seconds(task: Task) -> float:
        return takes[task.kind] + task.stage % GROUPS % 3

    def simulate(some: Work) -> Simulated:
        schedule = family.generate(some, Costs(time_limit_s=0, is_rough=True))
        graph = family.graph(some, schedule)
        busy = [0.0] * GROUPS
        for (stage, _), group in graph.groups.items():
            both = takes["F"] + 20.0 + 2 * (stage % GROUPS % 3) + some.split_backward * (stage % 3)
            busy[group] += both * some.slices / some.replicas
        makespan_s = float(lengths(schedule, graph, seconds, transfer_s)[1])
        held = [float(most) for most in peaks(schedule, graph)]
        return Simulated(makespan_s, held, graph, max(busy))

    return Rounds(family, work, simulate)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_glance_finds_no_more_bytes_and_hardly_more_seconds(family: ScheduleFamily) -> None:
    rounds = rounds_of(family, 8)
    glance = rounds.glance()
    assert glance is not None
    every = rounds.all()
    assert all(a <= b + 1e-9 for a, b in zip(glance.held, every.held, strict=True))
    assert glance.makespan_s <= 1.05 * every.makespan_s


def test_few_rounds_are_simulated_at_once() -> None:
    family = built_in()["1f1b"]
    few, more = (rounds_of(family, n * BUDGET.glance) for n in (1, 2))
    assert few.glance() is None and more.glance() is not None


def test_a_glance_is_not_simulated_again() -> None:
    """Where all rounds are extrapolated from those of the glance and others."""
    family = built_in()["v-min"]
    work = family.work(Work(8, 8 * 8, prologue=False, update_rounds=0))
    assert family.searches(work)
    counts: list[int] = []

    def simulate(some: Work) -> Simulated:
        counts.append(some.num_microbatches // 8)
        schedule = family.generate(some, Costs(time_limit_s=0, is_rough=True))
        return Simulated(1.0, [1.0], family.graph(some, schedule), 1.0)

    rounds = Rounds(family, work, simulate)
    assert rounds.glance() is not None
    rounds.all()
    assert counts == sorted({BUDGET.glance, *BUDGET.rounds_of_searched})
