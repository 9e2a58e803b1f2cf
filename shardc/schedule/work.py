"""The work of one pipeline step, without its order, derived from its counts alone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shardc.errors import ScheduleError
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    PROLOGUE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Amount,
    Buffer,
    Need,
    Task,
    TaskGraph,
)

Placement = Sequence[Sequence[int]]
"""Per replica, the device group of each stage."""


@dataclass(frozen=True)
class Work:
    """The counts of one step.

    Attributes:
        num_groups: device groups, at least 1.
        num_microbatches: of the whole step, both replicas together; at least 1.
        chunks: stages per device group and replica.
        slices: parts of each microbatch's sequence; slice j reads slices up to j.
        replicas: 2 if each stage is also on a second group, for a pipeline in the other
            direction. The first half of the microbatches goes through replica 0.
        backward: False for forward-only functions (evaluation): no B, no W.
        split_backward: the backward is split into B (input gradient) and W (weight gradient).
        prologue: each stage starts with one P.
        update_rounds: number of U per stage; stages exchange values between rounds.
        weight_share: share of a microbatch's activations that W still reads; B frees the rest.
        slice_tokens: share of each slice in a microbatch's tokens; () = equal parts.
        gathers: parameters are sharded over data-parallel ranks: G brings those of a stage
            together, R divides its gradients.
        parameters: size of a group's whole share of parameters, in microbatches of activations.
        offloads: the chunks of each group whose activations O and L move to the host and back.
    Raises:
        ScheduleError: SHARDC-242, a count is out of range.
    """

    num_groups: int
    num_microbatches: int
    chunks: int = 1
    slices: int = 1
    replicas: int = 1
    backward: bool = True
    split_backward: bool = False
    prologue: bool = True
    update_rounds: int = 1
    weight_share: Amount = 1
    slice_tokens: tuple[Amount, ...] = ()
    gathers: bool = False
    parameters: Amount = 0
    offloads: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, count, least in (
            ("stages", self.num_groups, 1),
            ("microbatches", self.num_microbatches, 1),
            ("chunks", self.chunks, 1),
            ("slices", self.slices, 1),
            ("update rounds", self.update_rounds, 0),
        ):
            if count < least:
                raise ScheduleError(
                    f"a schedule cannot have {count} {name}",
                    help=f"give {least} or more",
                    code="SHARDC-242",
                )

        unknown = [chunk for chunk in self.offloads if not 0 <= chunk < self.chunks]
        if unknown:
            raise ScheduleError(
                f"there is no chunk {unknown[0]} whose activations could be offloaded",
                help=f"each device has {self.chunks}, numbered from 0",
                code="SHARDC-242",
            )

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline, each counted once."""
        return self.num_groups * self.chunks

    @property
    def share(self) -> Amount:
        """The share of one F in the forward of one microbatch on a group's whole share."""
        parts = self.chunks * self.slices
        return 1 if parts == 1 else Fraction(1, parts)

    def size(self, slice_: int) -> Amount:
        """The share of a slice in the activations of one microbatch on a group's whole share."""
        if not self.slice_tokens:
            return self.share
        return self.slice_tokens[slice_] * self.share * self.slices

    def microbatches(self, replica: int = 0) -> range:
        """The microbatches that go through a replica."""
        count, rest = divmod(self.num_microbatches, self.replicas)
        first = replica * count + min(replica, rest)
        return range(first, first + count + (replica < rest))

    def graph(self, placement: Placement, fused: Collection[Task] = ()) -> TaskGraph:
        """The tasks of the step, their dependences and the activations they hold.

        F(s,k) needs P(s) and F(s-1,k); B(s,k) needs F(s,k) and B(s+1,k); W(s,k) needs B(s,k). With
        slices, F of a slice needs F of the previous slice on its stage, and B needs B of the next
        slice. U(s) needs the whole backward of s on both replicas; a later round of U needs the
        previous round on every stage.

        Args:
            fused: the X tasks, each replacing a B and a W; only if the backward is split.
        """
        if fused:
            return self._graph(placement, fused)
        return _unfused(self, tuple(map(tuple, placement)))

    def _graph(self, placement: Placement, fused: Collection[Task]) -> TaskGraph:
        groups = {
            (stage, replica): group
            for replica, of_stage in enumerate(placement)
            for stage, group in enumerate(of_stage)
        }
        whole = {task[:1] + task[2:] for task in fused} if self.split_backward else set()
        early, late = 1 - self.weight_share, self.weight_share
        share, sizes = self.share, [self.size(j) for j in range(self.slices)]
        needs: dict[Task, tuple[Need, ...]] = {}
        buffers: list[Buffer] = []
        last: dict[int, list[Task]] = {}
        for (stage, replica), group in groups.items():
            before = groups.get((stage - 1, replica), group)
            behind = groups.get((stage + 1, replica), group)
            if self.prologue:
                needs[Task(stage, PROLOGUE, 0, 0, replica)] = ()
            for k in self.microbatches(replica):
                for j in range(self.slices):
                    forward = Task(stage, FORWARD, k, j, replica)
                    waits = []
                    if self.prologue:
                        waits.append(Need(Task(stage, PROLOGUE, 0, 0, replica), 0, group, group))
                    if stage:
                        waits.append(
                            Need(Task(stage - 1, FORWARD, k, j, replica), share, before, group)
                        )
                    if j:
                        waits.append(Need(Task(stage, FORWARD, k, j - 1, replica), 0, group, group))
                    needs[forward] = tuple(waits)
                    if not self.backward:
                        buffers.append(Buffer(group, sizes[j], forward, (forward,)))
                        last.setdefault(stage, []).append(forward)
                        continue
                    is_whole = (stage, k, j, replica) in whole
                    kind = WHOLE_BACKWARD if is_whole else BACKWARD
                    backward = Task(stage, kind, k, j, replica)
                    waits = [Need(forward, 0, group, group)]
                    if stage + 1 < self.num_stages:
                        above = (stage + 1, k, j, replica) in whole
                        kind = WHOLE_BACKWARD if above else BACKWARD
                        needed = Task(stage + 1, kind, k, j, replica)
                        waits.append(Need(needed, share, behind, group))
                    if j + 1 < self.slices:
                        above = (stage, k, j + 1, replica) in whole
                        kind = WHOLE_BACKWARD if above else BACKWARD
                        waits.append(Need(Task(stage, kind, k, j + 1, replica), 0, group, group))
                    needs[backward] = tuple(waits)
                    if not self.split_backward or is_whole:
                        buffers.append(Buffer(group, sizes[j], forward, (backward,)))
                        last.setdefault(stage, []).append(backward)
                        continue
                    weight = Task(stage, WEIGHT, k, j, replica)
                    needs[weight] = (Need(backward, 0, group, group),)
                    last.setdefault(stage, []).append(weight)
                    for part, user in ((early, backward), (late, weight)):
                        if part:
                            held = sizes[j] if part == 1 else sizes[j] * part
                            buffers.append(Buffer(group, held, forward, (user,)))
        for number in range(self.update_rounds):
            for (stage, replica), group in groups.items():
                update = Task(stage, UPDATE, number, 0, replica)
                waited = (
                    [(task, self.share) for task in last.get(stage, [])]
                    if number == 0
                    else [(Task(s, UPDATE, number - 1, 0, r), 0) for s, r in groups]
                )
                needs[update] = tuple(
                    Need(task, num_bytes, groups[task.stage, task.replica], group)
                    for task, num_bytes in waited
                )
        return TaskGraph(needs, groups, tuple(buffers))


@lru_cache(maxsize=8)  # schedules of the same work share it
def _unfused(work: Work, placement: Placement) -> TaskGraph:
    return work._graph(placement, ())
