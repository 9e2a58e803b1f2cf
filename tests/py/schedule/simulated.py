"""One call from the name of a schedule to its simulation, for tests."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from shardc.schedule.check import check
from shardc.schedule.family import Costs, Planned
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import Simulation, simulate
from shardc.schedule.tasks import Amount
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work


@dataclass(frozen=True)
class Simulated:
    """A checked schedule and what it takes; `busy` is the work of one device group."""

    planned: Planned
    result: Simulation
    busy: Amount

    @property
    def bubble(self) -> Amount:
        return self.result.makespan_s - self.busy

    @property
    def span_bubble(self) -> Amount:
        return self.result.span_s - self.busy

    @property
    def peaks(self) -> list[Amount]:
        return list(self.result.peak_activations)


@cache
def run(
    name: str,
    p: int,
    m: int,
    *,
    chunks: int | None = None,
    slices: int | None = None,
    times: Times | None = None,
    transfer: Amount = 0,
    limit: Amount | None = None,
    weight_share: Amount = 1,
    time_limit_s: float = 60.0,
) -> Simulated:
    """A step without P and U, checked within `limit`; each is made once for all tests."""
    times = times or Times()
    costs = Costs(times, transfer, limit, time_limit_s=time_limit_s)
    base = Work(p, m, prologue=False, update_rounds=0, weight_share=weight_share)
    planned = plan_schedule(name, base, costs, chunks, slices)
    bound = None if limit is None else [limit] * p
    check(planned.schedule, planned.graph, bound)
    result = simulate(
        planned.schedule,
        planned.graph,
        durations(planned.work, times, planned.slice_shares),
        transfer,
    )
    return Simulated(planned, result, m * (times.forward_s + times.backward_s + times.weight_s))


def half(number: int) -> Fraction:
    return Fraction(number, 2)
