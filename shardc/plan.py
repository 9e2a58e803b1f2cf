"""What the planner decides and the runtime runs: frozen data, JSON both ways."""

import math
import re
from pathlib import Path
from typing import Any

import msgspec

from shardc.cluster import Cluster
from shardc.errors import PlanError

STAGE_AXIS = "stage"  # of the mesh on which an array lies whose rows belong to several stages


class TensorSharding(msgspec.Struct, frozen=True):
    """How one tensor lies on a mesh.

    Attributes:
        dims: for each tensor dim the mesh axes that split it, major to minor; () = whole.
        unreduced: mesh axes over which the devices hold partial sums of the value.
    """

    dims: tuple[tuple[str, ...], ...]
    unreduced: tuple[str, ...] = ()

    @staticmethod
    def replicated(rank: int) -> "TensorSharding":
        """Every device holds the whole tensor."""
        return TensorSharding(((),) * rank)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split dims, in order of the dims."""
        return tuple(axis for dim in self.dims for axis in dim)


class Mesh(msgspec.Struct, frozen=True):
    """Named axes over some devices.

    Attributes:
        axes: (name, size) pairs, major to minor; () is one device.
        device_ids: positions in the cluster's device list, row-major over the axes.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    def size(self, axis: str) -> int:
        """Devices along `axis`; PlanError if there is no such axis."""
        for name, size in self.axes:
            if name == axis:
                return size
        raise PlanError(f"the mesh has no axis '{axis}'", code="SHARDC-110")

    def num_shards(self, axes: tuple[str, ...]) -> int:
        """Product of the sizes of `axes`."""
        count = 1
        for axis in axes:
            count *= self.size(axis)
        return count


def ranges(numbers: tuple[int, ...]) -> str:
    """Numbers as people write them: `0-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


class ValueSpec(msgspec.Struct, frozen=True):
    """One argument or result of a stage program.

    Attributes:
        value: id that ties programs together: "arg3" (argument 3 of the user's function),
            "v17" (a value), "acc5" (an accumulator), "index" (the microbatch's index).
        shape: global shape (over all devices of the stage's mesh).
        dtype: NumPy/ml_dtypes name such as "float32", "bfloat16", "int32", "bool".
        sharding: how the global value lies on the stage's mesh.
        per_microbatch: one value per microbatch, or one per step.
    """

    value: str
    shape: tuple[int, ...]
    dtype: str
    sharding: TensorSharding
    per_microbatch: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the global value; parts of a byte count as one."""
        bits = (
            8 if self.dtype == "bool" else int(re.sub(r"\D.*", "", re.sub(r"^\D+", "", self.dtype)))
        )
        return math.prod(self.shape) * max(bits // 8, 1)


class StageProgram(msgspec.Struct, frozen=True):
    """One function of one stage, ready for the backend.

    Attributes:
        name: symbol of the function in `module`, such as "stage0_forward".
        kind: "before", "forward", "backward" or "update".
        round: for kind "update": rounds run in order; stages exchange values between them.
        module: MLIR bytecode or text, with large constants as they are; `local` says whether it is
            a per-device program. `shardc.backend.program_text` prints it.
        donated: positions of `args` whose buffers the program may reuse.
    """

    name: str
    stage: int
    kind: str
    round: int
    module: bytes
    args: tuple[ValueSpec, ...]
    results: tuple[ValueSpec, ...]
    donated: tuple[int, ...] = ()
    local: bool = True


class ArgumentSpec(msgspec.Struct, frozen=True):
    """One flat argument of the user's function.

    Attributes:
        name: in the user's words, such as "state['w']".
        stage: owner stage; other stages that use it are sent copies each step (-1: unused).
        batch_dim: None, or the dim d that is cut: the programs see [.., M, B / M, ..] there.
        aliased_result: flat result that may reuse its buffer, or None.
        piece: None, or (argument, dim): no argument of the user's, but the rows along `dim` of a
            stacked one that follow those that the programs know by that argument's number.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stage: int
    batch_dim: int | None = None
    donated: bool = False
    aliased_result: int | None = None
    piece: tuple[int, int] | None = None


class ResultSpec(msgspec.Struct, frozen=True):
    """One flat result of the user's function.

    Attributes:
        value: id of the value that it is (may be "arg3": returned unchanged).
        batch_dim: None, or d where the program gives [.., M, B / M, ..] that is merged again.
        piece: as of an argument.
    """

    value: str
    shape: tuple[int, ...]
    dtype: str
    stage: int
    batch_dim: int | None = None
    piece: tuple[int, int] | None = None


class Executable(msgspec.Struct, frozen=True):
    """All that the runtime needs to run one step; no compiler, no planner.

    Attributes:
        meshes: one per stage.
        actions: per stage, the printed actions of the schedule, e.g. ("0F0", "0F1", "0B0", ...).
    """

    meshes: tuple[Mesh, ...]
    programs: tuple[StageProgram, ...]
    arguments: tuple[ArgumentSpec, ...]
    results: tuple[ResultSpec, ...]
    num_microbatches: int
    actions: tuple[tuple[str, ...], ...]


class Predicted(msgspec.Struct, frozen=True):
    """What the cost model expects of one step."""

    step_time_s: float
    peak_bytes_per_device: int
    communication_bytes: int
    compute_s: float
    bubble_fraction: float


class OpSharding(msgspec.Struct, frozen=True):
    """The strategy of one op: the shardings it takes its operands in and gives its results in.

    Attributes:
        reduce_axes: axes over which the op all-reduces its own result (a max over a split dim).
    """

    operands: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    reduce_axes: tuple[str, ...] = ()


class FunctionSharding(msgspec.Struct, frozen=True):
    """The shardings of one stage function: of its arguments, its results and each of its ops."""

    arguments: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    ops: tuple[OpSharding, ...]


class Replicated(msgspec.Struct, frozen=True):
    """The ops of one name that every device of a stage runs whole.

    Attributes:
        op: `stablehlo.add`, or `stablehlo.custom_call @target`.
        why: "rule" where none says how to split it, "strategy" where no split of these shapes is
            possible or allowed, "choice" where another one would cost more.
        num_ops: how many there are.
        seconds, num_flops: of all of them, per step, on one device.
    """

    op: str
    why: str
    num_ops: int
    seconds: float
    num_flops: int


class Memory(msgspec.Struct, frozen=True):
    """Bytes on one device by what they are for, at the time of a step when there are most.

    Attributes:
        parameters: state that forward or backward read.
        optimizer_state: state that only the update reads.
        inputs: arguments that are no state.
        gradients: their sums over the microbatches, as far as they are there at that time.
        stash: kept from forward to backward, for all microbatches in flight.
        temporaries: results of ops, and what goes from one function to the next.
    """

    parameters: int = 0
    optimizer_state: int = 0
    inputs: int = 0
    gradients: int = 0
    stash: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field) for field in self.__struct_fields__)


class Collective(msgspec.Struct, frozen=True):
    """All collectives of one kind over the same axes in one step of a stage.

    Attributes:
        kind: "all_gather", "all_reduce", "all_to_all" or "reduce_scatter".
        axes: of the stage's mesh, in its order.
        dtype: of the elements that are sent.
        num_bytes: of all their results on one device.
    """

    kind: str
    axes: tuple[str, ...]
    dtype: str
    num_bytes: int


class StageReport(msgspec.Struct, frozen=True):
    """What the cost model says about one stage under its chosen shardings.

    Attributes:
        seconds: by kind of function ("before", "forward", "backward", "update"), for one call.
        peak_bytes: on each device, at the worst time of a step.
        communication_bytes: that one device sends inside the stage in one step.
        num_flops: of one step, over all devices.
        objective: seconds per step that the solver minimised.
        lower_bound: proven: no choice of shardings costs less.
        replicated: what every device runs whole.
        ideal_s: seconds per step if all ops were split evenly and nothing were sent.
        memory: what `peak_bytes` are.
        collectives: what the stage's programs will hold, reshards and reductions of their own.
        num_folded: ops and values that shared the sharding of a like one in an equal layer while
            the solver looked for shardings, or still do.
        folded_objective: seconds of the best shardings found in which they do; None: not folded.
    """

    seconds: dict[str, float]
    peak_bytes: int
    communication_bytes: int
    num_flops: int
    objective: float
    lower_bound: float
    replicated: tuple[Replicated, ...] = ()
    ideal_s: float = 0.0
    memory: Memory = Memory()
    collectives: tuple[Collective, ...] = ()
    num_folded: int = 0
    folded_objective: float | None = None


class StagePlan(msgspec.Struct, frozen=True):
    """One stage: its mesh, its part of the program, and what the cost model says about it.

    Attributes:
        layers: indices of the layers it holds, contiguous.
        cut: position in the split @main of its first forward op (0 for the first stage).
        num_flops: floating-point operations per step, over all its devices.
        num_whole_flops: of these in ops that every device runs whole (counted once).
        time_s: seconds per microbatch, forward and backward.
        peak_bytes: per device.
        memory: what they are for.
        collectives: inside the stage, by kind and axes.
        num_folded, folded_objective: as in a StageReport.
    """

    mesh: Mesh
    layers: tuple[int, ...]
    cut: int = 0
    num_flops: int = 0
    time_s: float = 0.0
    peak_bytes: int = 0
    memory: Memory = Memory()
    objective: float = 0.0
    lower_bound: float = 0.0
    num_whole_flops: int = 0
    collectives: tuple[Collective, ...] = ()
    num_folded: int = 0
    folded_objective: float | None = None


class Plan(msgspec.Struct, frozen=True):
    """Everything that was decided for one program on one cluster.

    Attributes:
        shardings: name of a stage function -> the shardings in it.
        notes: what was replicated or fell short, in the user's words.
        unmet: of the notes, those on what was asked for and could not be had.
        batch_arguments: flat arguments that are cut into microbatches.
        batch_dims: the dim of each of them that is cut.
        loop_cuts: iterations of loops over layers (counted over all such loops) at which they are
            cut into stages.
        fingerprint: digest of program, cluster, options and version that this plan was made for.
        cluster: what the plan was made for; its links decide between sequences of collectives.
    """

    num_stages: int
    num_microbatches: int
    schedule: str
    stages: tuple[StagePlan, ...]
    shardings: dict[str, FunctionSharding]
    predicted: Predicted
    objective: float
    lower_bound: float
    planning_time_s: float
    notes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    batch_arguments: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()
    loop_cuts: tuple[int, ...] = ()
    fingerprint: str = ""
    cluster: Cluster | None = None

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON."""
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @staticmethod
    def load(path: str | Path) -> "Plan":
        """Reads a plan that `save` wrote; PlanError (SHARDC-200) if it is not one."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=Plan)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PlanError(
                f"'{path}' is not a plan: {error}",
                where=str(path),
                help="make one with `shardc plan FILE.mlir --cluster NAME -o plan.json`",
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data
