"""A family of schedules: the placement of stages, and the order of each group's tasks."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from shardc.errors import ScheduleError
from shardc.schedule.moves import with_moves
from shardc.schedule.orders.insert_moves import insert_moves
from shardc.schedule.placement import looped, stages_of
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    GATHER,
    LINKS,
    PROLOGUE,
    REDUCE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Amount,
    Need,
    Schedule,
    Task,
    TaskGraph,
)
from shardc.schedule.times import Durations, Times, Transfers, durations
from shardc.schedule.work import Placement, Work
from shardc.solver.pipeline.slices import slice_lengths

BLOCKS_PER_SLICE = 8  # resolution of slice lengths


@dataclass(frozen=True)
class Costs:
    """The times and limits that a family's order may depend on.

    Attributes:
        times: of a group's whole share; of every stage, or one per stage and copy.
        transfer_s: of a value sent to another group.
        max_activations: per device group, in microbatches of its full share; None: no limit.
        effort_s: counted work of a family that searches, as in `shortest_order`.
        time_limit_s: for a family that searches, by the clock.
        attention_share: part of a microbatch's time that grows with the square of its length; later
            slices then get fewer tokens.
        most_held: per stage, the microbatches whose activations it may hold (respected by the
            families that search); (): no limit.
        barrier: the next step starts when all groups have ended: the makespan counts, not the span.
        is_rough: an order that is a few per cent longer will do: families that try many try few.
    """

    times: Times | tuple[Times, ...] = field(default_factory=Times)
    transfer_s: Amount | Transfers = 0
    max_activations: Amount | None = None
    effort_s: float = 30.0
    time_limit_s: float = 60.0
    attention_share: Amount = 0
    most_held: tuple[int, ...] = ()
    barrier: bool = False
    is_rough: bool = False

    def durations(self, work: Work, slice_shares: Sequence[Amount] = ()) -> Durations:
        """The time of each task."""
        return durations(work, self.times, slice_shares)

    def send_s(self, need: Need) -> Amount:
        """The time until a value of another group has arrived."""
        if need.source == need.target or not need.num_bytes:
            return 0
        return self.transfer_s(need) if isinstance(self.transfer_s, Transfers) else self.transfer_s


Lanes = Sequence[Sequence[Task]]
Order = Callable[[Work, Costs], Lanes]
"""The per-microbatch tasks of each device group, in order; `framed` adds P and U."""


@dataclass(frozen=True)
class ScheduleFamily:
    """One way to order a pipeline, for any number of stages and microbatches.

    Attributes:
        order: (work, costs) -> per device group its per-microbatch tasks in order.
        split_backward: it runs B and W separately (and may fuse some as X).
        chunks: stages per device group, or () if any number works.
        replicas: 2 if each stage is on two groups.
        slices: whether it splits microbatches into token slices.
        place: (work) -> per replica the device group of each stage.
        refuses: (work) -> why it does not support the counts and what to do, or None.
        searches: (work) -> whether its order takes seconds to find.
        any_placement: it takes the placement of whichever other family is best.
        held: (work) -> `in_flight` of whole stages, as a formula; None: it is counted in the lanes.
        offloads: the chunks of each group whose activations it moves to the host.
        moves: the kinds of moves that its lanes have from the start.
        only: the number of device groups and that of microbatches, if it is written out for these.
        about: one line for people.
    """

    name: str
    order: Order
    split_backward: bool = False
    chunks: tuple[int, ...] = (1,)
    replicas: int = 1
    slices: bool = False
    place: Callable[[Work], Placement] = looped
    refuses: Callable[[Work], tuple[str, str] | None] = lambda work: None
    searches: Callable[[Work], bool] = lambda work: False
    any_placement: bool = False
    held: Callable[[Work], tuple[int, ...]] | None = None
    offloads: tuple[int, ...] = ()
    moves: frozenset[str] = frozenset()
    only: tuple[int, int] | None = None
    about: str = ""

    def work(self, base: Work, chunks: int | None = None, slices: int | None = None) -> Work:
        """`base` with the chunks, slices and replicas of this family.

        Args:
            chunks, slices: None: the family's defaults.
        Raises:
            ScheduleError: SHARDC-242, it does not support such a number of them.
        """
        work = replace(
            base,
            chunks=self.num_chunks(chunks),
            slices=self.num_slices(slices),
            replicas=self.replicas,
            split_backward=self.split_backward and base.backward,
            offloads=base.offloads or self.offloads,
        )
        refusal = self.refuses(work)
        if refusal is not None:
            raise self._refusal(*refusal)
        return work

    def num_chunks(self, asked: int | None = None) -> int:
        """Stages per device group: the requested number, or the family's default.

        Raises:
            ScheduleError: SHARDC-242, it does not support this number.
        """
        if asked is not None and self.chunks and asked not in self.chunks:
            own = " or ".join(map(str, self.chunks))
            raise self._refusal(
                f"runs {own} chunk{'s' * (own != '1')} per device, not {asked}",
                "leave --chunks out",
            )
        return (self.chunks or (2,))[0] if asked is None else asked

    def num_slices(self, asked: int | None = None) -> int:
        """Token slices of each microbatch: as many as asked for, or what the family takes.

        Raises:
            ScheduleError: SHARDC-242, it cuts no microbatches.
        """
        if asked is not None and asked != 1 and not self.slices:
            raise self._refusal(
                f"does not cut microbatches into slices, so not into {asked}",
                "leave --slices out, or take terapipe or seq1f1b",
            )
        return (2 if self.slices else 1) if asked is None else asked

    def generate(self, work: Work, costs: Costs | None = None) -> Schedule:
        """The schedule of `work`, whose chunks and slices come from `self.work`."""
        costs = costs or Costs(time_limit_s=0)
        lanes = ordered(self, self.whole(work), costs)
        if not work.backward:
            lanes = [[t for t in lane if t.kind in (FORWARD, GATHER)] for lane in lanes]
        if (work.gathers or work.offloads) and not self.moves & {GATHER, REDUCE}:
            lanes = insert_moves(lanes, work, costs.durations(work))
        return Schedule(framed(lanes, work, self.place(work)))

    def whole(self, work: Work) -> Work:
        """The work that a family orders: of every microbatch, forward and backward."""
        return replace(
            work,
            backward=True,
            split_backward=self.split_backward,
            prologue=False,
            update_rounds=0,
            gathers=False,
            offloads=(),
        )

    def bound(self, work: Work, costs: Costs) -> Amount | None:
        """Proven: no order of these stages on these groups is shorter; None if nothing is known.

        It counts the tasks of microbatches alone, without P and U.
        """
        return None

    def graph(self, work: Work, schedule: Schedule) -> TaskGraph:
        """The task graph of `work` for a schedule of this family."""
        return graph_of(schedule, work, self.place(work))

    def plan(
        self, base: Work, costs: Costs, chunks: int | None = None, slices: int | None = None
    ) -> "Planned":
        """The schedule for `base` under `costs`, with its graph.

        Raises:
            ScheduleError: SHARDC-242, the family does not support the counts.
        """
        work = self.work(base, chunks, slices)
        shares: tuple[Amount, ...] = ()
        if work.slices > 1 and costs.attention_share:
            tokens, shares = sliced(work, costs.attention_share)
            work = replace(work, slice_tokens=tokens)
        schedule = self.generate(work, costs)
        return Planned(work, schedule, self.graph(work, schedule), slice_shares=shares)

    def in_flight(self, work: Work) -> tuple[int, ...]:
        """For each stage, the microbatches whose activations it holds at once in this schedule.

        A slice counts as its share of a microbatch, rounded up.
        """
        if self.held is not None and work.backward and work.slices == 1:
            return self.held(work)
        split = self.split_backward and work.backward
        return _in_flight(
            self, replace(work, prologue=False, update_rounds=0, split_backward=split)
        )

    def _refusal(self, what: str, help: str) -> ScheduleError:
        return ScheduleError(f"'{self.name}' {what}", help=help, code="SHARDC-242")


@dataclass(frozen=True)
class Planned:
    """A schedule with its work and task graph.

    Attributes:
        lower_bound: no schedule of these stages on these groups, within the allowed memory, has a
            shorter span; None if nothing was proven.
        slice_shares: share of each slice in a microbatch's time; () = equal parts.
    """

    work: Work
    schedule: Schedule
    graph: TaskGraph
    lower_bound: Amount | None = None
    slice_shares: tuple[Amount, ...] = ()


@lru_cache(maxsize=64)
def ordered(family: ScheduleFamily, work: Work, costs: Costs) -> Lanes:
    """The family's order; the last are cached, because some families build on those of others."""
    return family.order(work, costs)


@lru_cache(maxsize=4096)
def _in_flight(family: ScheduleFamily, work: Work) -> tuple[int, ...]:
    return most_held(family.generate(work), work)


def most_held(schedule: Schedule, work: Work) -> tuple[int, ...]:
    """For each stage, the most microbatches of which a copy has begun the forward but not ended
    the backward; a slice counts as its share of a microbatch, rounded up."""
    ends = (WEIGHT if work.split_backward else BACKWARD, WHOLE_BACKWARD)
    most = [0] * work.num_stages
    for lane in schedule.lanes:
        held: dict[tuple[int, int], int] = {}
        for task in lane:
            key = task.stage, task.replica
            if task.kind == FORWARD:
                held[key] = held.get(key, 0) + 1
                most[task.stage] = max(most[task.stage], held[key])
            if task.kind in ends or (task.kind == FORWARD and not work.backward):
                held[key] -= 1
    return tuple(-(-count // work.slices) for count in most)


def sliced(work: Work, attention_share: Amount) -> tuple[tuple[Amount, ...], tuple[Amount, ...]]:
    """The share of each slice in the tokens and in the time, for the fastest pipeline.

    A causal slice attends to all earlier tokens: in a sequence of length 1, the tokens from i to j
    take (1 - a) (j - i) + a (j^2 - i^2) of the time.
    """
    num_blocks = BLOCKS_PER_SLICE * work.slices

    def time(first: int, end: int) -> Amount:
        i, j = Fraction(first, num_blocks), Fraction(end, num_blocks)
        return (1 - attention_share) * (j - i) + attention_share * (j * j - i * i)

    lengths, _ = slice_lengths(num_blocks, work.num_groups, time, work.slices)
    ends = list(itertools.accumulate(lengths))
    shares = [time(end - length, end) for length, end in zip(lengths, ends, strict=True)]
    return tuple(Fraction(length, num_blocks) for length in lengths), tuple(shares)


def graph_of(schedule: Schedule, work: Work, placement: Placement) -> TaskGraph:
    """The graph of `work`, with X for what `schedule` runs as X, and with its moves.

    Raises:
        ScheduleError: SHARDC-248, as in `with_moves`.
    """
    fused = {task for lane in schedule.lanes for task in lane if task.kind == WHOLE_BACKWARD}
    graph = work.graph(placement, fused)
    if work.gathers or any(task.kind in LINKS for lane in schedule.lanes for task in lane):
        return with_moves(graph, schedule, work)
    return graph


def framed(lanes: Lanes, work: Work, placement: Placement) -> tuple[tuple[Task, ...], ...]:
    """Each lane with P of all its stages before and U of all its stages after, round by round."""
    found = []
    for group, lane in enumerate(lanes):
        own = stages_of(placement, group)
        before = [Task(s, PROLOGUE, 0, 0, r) for s, r in own] if work.prologue else []
        after = [
            Task(s, UPDATE, number, 0, r) for number in range(work.update_rounds) for s, r in own
        ]
        found.append((*before, *lane, *after))
    return tuple(found)
