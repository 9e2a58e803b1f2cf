"""The cost model's prediction for a stage and for a step."""

from typing import Literal

import msgspec

from shardc.plan.function_kind import FunctionKind
from shardc.plan.priced_work import Work
from shardc.plan.stages_spec import Recompute


class Predicted(msgspec.Struct, frozen=True):
    """The cost model's prediction of one step.

    Attributes:
        step_time_s: of a step by itself, from its first action to its last.
        bubble_fraction: the share of it in which device groups wait.
        next_step_s: what one more step adds to a run of many: less where a device group that ends
            early begins the next step before the others have ended. 0.0 in plans of older versions.
    """

    step_time_s: float
    peak_bytes_per_device: int
    communication_bytes: int
    compute_s: float
    bubble_fraction: float
    next_step_s: float = 0.0


class JudgedSchedule(msgspec.Struct, frozen=True):
    """A schedule that was considered for a pipeline.

    Attributes:
        chunks: stages on each device group.
        step_time_s: of a simulated step; 0.0 if the schedule was not simulated.
        peak_bytes: of the device that holds the most.
        is_planned: both come from programs made for this schedule; otherwise they are estimates
            from the programs of the pipeline's first schedule.
        refusal: why it cannot be used; "" if it can.
        slices: token slices of each microbatch.
        lower_bound_s: proven: no order of the same stages within the same memory has a shorter
            step; 0.0 if nothing was proven, as for all that do not search for an order.
        recompute: what all of its stages compute again; "": each does what the stages of the
            pipeline's first schedule do.
    """

    name: str
    chunks: int
    step_time_s: float = 0.0
    peak_bytes: int = 0
    is_planned: bool = False
    refusal: str = ""
    slices: int = 1
    lower_bound_s: float = 0.0
    recompute: Recompute | Literal[""] = ""


class Replicated(msgspec.Struct, frozen=True):
    """The ops of one name that every device of a stage runs whole.

    Attributes:
        op: `stablehlo.add`, or `stablehlo.custom_call @target`.
        why: "rule" if the op has no sharding rule, "strategy" if no split of these shapes is
            possible or allowed, "choice" if any split would cost more.
        num_ops: their number.
        seconds, num_flops: of all of them, per step, on one device.
    """

    op: str
    why: str
    num_ops: int
    seconds: float
    num_flops: int


class Memory(msgspec.Struct, frozen=True):
    """Bytes on one device at the peak of a step, by purpose.

    Attributes:
        parameters: state that the forward or backward pass reads, and what it is gathered into.
        optimizer_state: state that only the update reads.
        inputs: arguments that are not state.
        gradients: their sums over the microbatches, if live at that time.
        results: to which the forward passes of microbatches add: the loss, outputs, caches.
        stash: kept from forward to backward, for all microbatches in flight.
        temporaries: results of ops, and values passed from one function to the next.
    """

    parameters: int = 0
    optimizer_state: int = 0
    inputs: int = 0
    gradients: int = 0
    results: int = 0
    stash: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field) for field in self.__struct_fields__)


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A value on a device at the peak of a step.

    Attributes:
        kind: a field of `Memory`.
        value: id, of a value that functions share; "" otherwise.
        function, op: position of the op that makes it; function "" for buffers of reshards.
    """

    kind: str
    num_bytes: int
    value: str = ""
    function: str = ""
    op: int = 0


class Collective(msgspec.Struct, frozen=True):
    """All collectives of one kind over the same axes in one step of a stage.

    Attributes:
        kind: "all_gather", "all_reduce", "all_to_all" or "reduce_scatter".
        axes: of the stage's mesh, in its order.
        dtype: of the elements sent.
        num_bytes: of all their results on one device.
        count: their number.
    """

    kind: str
    axes: tuple[str, ...]
    dtype: str
    num_bytes: int
    count: float = 0


class Asked(msgspec.Struct, frozen=True):
    """The work that a function, or one iteration of a loop in it, requires of each device.

    Attributes:
        work: kinds of work, and how often each is done.
        sent: collectives.
        times: iterations of the loop in one call of the function; 1 outside loops.
    """

    work: tuple[tuple[Work, float], ...] = ()
    sent: tuple[Collective, ...] = ()
    times: float = 1.0


class StageReport(msgspec.Struct, frozen=True):
    """The cost model's prediction for one stage under its chosen shardings.

    Attributes:
        seconds: by kind of function, for one call.
        peak_bytes: on each device, at the peak of a step.
        communication_bytes: sent by one device inside the stage in one step.
        num_flops: per step, over all devices.
        objective: seconds per step that the solver minimised.
        lower_bound: proven: no choice of shardings costs less.
        replicated: ops that every device runs whole.
        ideal_s: seconds per step if all ops were split evenly and nothing were sent.
        memory: breakdown of `peak_bytes`.
        peak_at: the function, and the position of an op in it, at which memory peaks.
        held: all values on a device at that time.
        collectives: all collectives in the stage's programs, from reshards and reductions.
        num_folded: ops and values that shared the sharding of their counterpart in an equal layer
            during the search, or still do.
        folded_objective: seconds of the best shardings found with sharing; None: not folded.
        communication_s: per step, of reshards and of reductions over devices.
        asked: by kind of function, as in `seconds`: the work behind these seconds, one entry for
            each number of times that work is done in a call.
        slices: by kind of function that is cut into token slices, the share of each slice in its
            seconds.
    """

    seconds: dict[FunctionKind, float]
    peak_bytes: int
    communication_bytes: int
    num_flops: int
    objective: float
    lower_bound: float
    replicated: tuple[Replicated, ...] = ()
    ideal_s: float = 0.0
    memory: Memory = Memory()
    peak_at: tuple[str, int] = ("", 0)
    held: tuple[Held, ...] = ()
    collectives: tuple[Collective, ...] = ()
    num_folded: int = 0
    folded_objective: float | None = None
    communication_s: float = 0.0
    asked: dict[FunctionKind, tuple[Asked, ...]] = {}
    slices: dict[FunctionKind, tuple[float, ...]] = {}

    @property
    def microbatch_s(self) -> float:
        """Seconds of a microbatch, forward and backward."""
        return sum(s for kind, s in self.seconds.items() if kind.per_microbatch)
