"""The times of a step's tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    WHOLE_BACKWARD,
    Amount,
    Need,
    Task,
)
from shardc.schedule.work import Work

Durations = Callable[[Task], Amount]
"""Time of a task."""


@dataclass(frozen=True)
class Times:
    """Times of a device group's whole share of one microbatch, in seconds or any one unit.

    A chunk or a slice takes its share of these.

    Attributes:
        forward_s: F of one microbatch.
        backward_s: input-gradient backward of one microbatch.
        weight_s: weight-gradient backward; in a schedule that does not split it, B takes both.
        prologue_s: P.
        update_s: each round of U.
        gather_s, reduce_s: G and R of all parameters and gradients.
        offload_s, load_s: O and L of the activations of one microbatch.
        forward_slices, backward_slices, weight_slices: share of each token slice in F, B and W;
            () = equal parts.
    """

    forward_s: Amount = 1
    backward_s: Amount = 1
    weight_s: Amount = 1
    prologue_s: Amount = 0
    update_s: Amount = 0
    gather_s: Amount = 0
    reduce_s: Amount = 0
    offload_s: Amount = 0
    load_s: Amount = 0
    forward_slices: tuple[Amount, ...] = ()
    backward_slices: tuple[Amount, ...] = ()
    weight_slices: tuple[Amount, ...] = ()

    def of(self, kind: str, work: Work, slice_: int = 0) -> Amount:
        """Seconds of one task of `kind`."""

        def part(seconds: Amount, shares: tuple[Amount, ...]) -> Amount:
            share = work.share
            return seconds * (share * work.slices * shares[slice_] if shares else share)

        match kind:
            case "P" | "U" | "G" | "R":
                whole = {
                    "P": self.prologue_s,
                    "U": self.update_s,
                    "G": self.gather_s,
                    "R": self.reduce_s,
                }
                return whole[kind] * work.share * work.slices
            case "O":
                return self.offload_s * work.share
            case "L":
                return self.load_s * work.share
            case "F":
                return part(self.forward_s, self.forward_slices)
            case "W":
                return part(self.weight_s, self.weight_slices)
            case "B" if work.split_backward:
                return part(self.backward_s, self.backward_slices)
            case _:
                own = part(self.backward_s, self.backward_slices)
                return own + part(self.weight_s, self.weight_slices)


def durations(
    work: Work, times: Times | Sequence[Times], slice_shares: Sequence[Amount] = ()
) -> Durations:
    """The time of each task.

    Args:
        times: of every stage, or one per stage and copy (each for the group's whole share, so
            a chunk of it takes 1 / chunks).
        slice_shares: share of each slice in a microbatch's time, where `times` have none; () =
            equal parts.
    """
    places = work.num_stages * work.replicas
    per_stage = [times] * places if isinstance(times, Times) else list(times)
    assert len(per_stage) == places, "one Times per stage"
    known: dict[tuple[int, str, int, int], Amount] = {}

    def of(task: Task) -> Amount:
        key = (task.stage, task.kind, task.slice, task.replica)
        if key not in known:
            found = per_stage[task.place(work.num_stages)].of(task.kind, work, task.slice)
            if slice_shares and task.kind in (FORWARD, BACKWARD, WEIGHT, WHOLE_BACKWARD):
                found = found * work.slices * slice_shares[task.slice]
            known[key] = found
        return known[key]

    return of


Edge = tuple[int, int, bool, int, int]
"""Stage, replica, whether forward, slice, and target group of a value that is sent."""


@dataclass(frozen=True)
class Transfers:
    """The time to send each value, where it depends on the sender, the value and the receiver.

    Attributes:
        seconds: (edge, time), each edge once. Other values are sent in no time.
    """

    seconds: tuple[tuple[Edge, Amount], ...]

    def __call__(self, need: Need) -> Amount:
        """The time until another group has the value that it needs."""
        return self._known.get(edge_of(need), 0)

    @cached_property
    def _known(self) -> dict[Edge, Amount]:
        return dict(self.seconds)


def edge_of(need: Need) -> Edge:
    """The edge over which a value is sent."""
    task = need.task
    return task.stage, task.replica, task.kind == FORWARD, task.slice, need.target
