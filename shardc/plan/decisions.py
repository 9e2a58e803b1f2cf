"""The planner's decisions: frozen data, JSON both ways."""

import math
from pathlib import Path
from typing import Any, Literal

import msgspec

from shardc.cluster import Cluster
from shardc.errors import PlanError, writing
from shardc.files import BAD_DATA, read_data, write_whole
from shardc.plan.account import Account
from shardc.plan.alternatives import Alternative, Terms, split_step
from shardc.plan.layout import DeviceGroup, Mesh, TensorSharding, device_groups
from shardc.plan.notes import Note, NoteCode
from shardc.plan.predicted import Collective, JudgedSchedule, Memory, Predicted


class OpSharding(msgspec.Struct, frozen=True):
    """The strategy of one op: the shardings of its operands and of its results.

    Attributes:
        reduce_axes: axes over which the op all-reduces its own result (a max over a split dim).
    """

    operands: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    reduce_axes: tuple[str, ...] = ()


class FunctionSharding(msgspec.Struct, frozen=True):
    """The shardings of one stage function: its arguments, its results and each of its ops."""

    arguments: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    ops: tuple[OpSharding, ...]


class ValuePlan(msgspec.Struct, frozen=True):
    """Where the backward pass of a stage gets a forward value from that the program recomputes.

    Attributes:
        value: identifies it: the position of its op in the prepared @main, `12`; in a loop over
            layers also which of its kind the op is there, `12.tanh1`; `:1` if it is not the op's
            first result; `#2` where the stage computes it again a second time.
        residency: "keep": it is kept from the forward pass; "recompute": it is computed again, as
            the program says, though keeping it would save time.
        op: its name.
        where: its position in the source; "" if unknown.
        num_bytes: of one microbatch, over all devices and layers of the stage.
        seconds: of its op on one device, in all layers of the stage.
    """

    value: str
    residency: Literal["keep", "recompute"]
    op: str
    where: str
    num_bytes: int
    seconds: float


class RequestedSharding(msgspec.Struct, frozen=True):
    """A sharding of an argument that was requested from outside the program.

    Attributes:
        argument: its flat position.
        words: the request, as in `shardc plan --sharding`: `-,x*y,?`.
        origin: the pattern or the argument that it comes from.
    """

    argument: int
    words: str
    origin: str


class StagePlan(msgspec.Struct, frozen=True):
    """One stage: its mesh, its part of the program, and the prediction of the cost model.

    Attributes:
        layers: indices of its layers, contiguous.
        cut: position in the split @main of its first forward op (0 for the first stage).
        num_flops: floating-point operations per step, over all its devices.
        num_whole_flops: the part of `num_flops` in replicated ops (counted once).
        time_s: seconds per microbatch, forward and backward.
        peak_bytes: per device.
        memory: breakdown of `peak_bytes`.
        collectives: inside the stage, by kind and axes.
        num_folded, folded_objective, communication_s: as in a StageReport.
        recompute: number of microbatches in flight for which recomputation was chosen; 0: the
            stage keeps every forward value that its backward needs.
        values: what the program computes again, if the stage keeps some of it.
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
    communication_s: float = 0.0
    recompute: int = 0
    values: tuple[ValuePlan, ...] = ()


def stage_words(num_groups: int, num_chunks: int, each: str = "") -> str:
    """`2 stages`; `2 device groups with 3 stages each`; with what `each` group is behind it.

    Args:
        num_chunks: stages of each group.
    """
    plural, each = "s" * (num_groups != 1), f" {each}" * bool(each)
    if num_chunks == 1:
        return f"{num_groups} stage{plural}{each}"
    return f"{num_groups} device group{plural}{each} with {num_chunks} stages each"


class Plan(msgspec.Struct, frozen=True):
    """Every decision for one program on one cluster.

    Attributes:
        num_stages: device groups of the pipeline, as requested; each runs `num_chunks` of `stages`.
            With `num_replicas` 2 it also runs as many second copies, at the end of `stages`.
        lanes: per device group, the printed actions of the schedule in order.
        shardings: name of a stage function -> its shardings.
        objective: seconds per step of the slowest stage; no schedule of this shape is faster.
        lower_bound: proven: under any shardings, a step of this shape takes at least this long.
        notes: on what is replicated and which requests were not met.
        unmet: the notes on requests that were not met.
        batch_arguments: flat arguments that are split into microbatches.
        batch_dims: the dim of each of them that is split.
        loop_cuts: iterations (counted over all loops over layers) at which these loops are cut
            into stages.
        fingerprint: digest of the program, cluster, options and version the plan was made for.
        gather: axis over which parameters lie sharded and are gathered by actions of their own (G);
            "": none are.
        cast_once: whether parameters are cast to narrower types once per step, into copies.
        keep_price: if the microbatches are run through several times, what takes longer to compute
            again than this many times to write and read is kept for later times; 0: nothing is.
        requested: shardings that the program does not say itself; to cut it for this plan takes
            them (a stack of layers that is split along the layers stays whole).
        cluster: the plan's cluster; its links determine the sequences of collectives.
        from_cache: whether the plan was loaded from the plan cache.
        account: what the plan does and when, for explanations; None in plans of older versions,
            and if planning was interrupted.
        schedules: schedules considered for its pipeline, shortest step first; () if the
            schedule was given or there is no pipeline.
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
    notes: tuple[Note, ...] = ()
    unmet: tuple[Note, ...] = ()
    batch_arguments: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()
    loop_cuts: tuple[int, ...] = ()
    fingerprint: str = ""
    cluster: Cluster | None = None
    from_cache: bool = False
    num_chunks: int = 1
    num_replicas: int = 1
    num_slices: int = 1
    gather: str = ""
    cast_once: bool = False
    keep_price: float = 0.0
    requested: tuple[RequestedSharding, ...] = ()
    lanes: tuple[tuple[str, ...], ...] = ()
    account: Account | None = None
    schedules: tuple[JudgedSchedule, ...] = ()

    def __str__(self) -> str:
        """`2 stages of 4 devices, 8 microbatches (1f1b), predicted 1.3 ms and 9 MiB per device`."""
        sizes = [len(group.device_ids) for group in self.groups]
        devices = "+".join(map(str, sizes)) if len(set(sizes)) > 1 else str(sizes[0])
        of = f"of {devices} device{'s' * (devices != '1')}"
        return (
            f"{stage_words(self.num_stages, self.num_chunks, of)},"
            f" {self.num_microbatches} microbatch{'es' * (self.num_microbatches != 1)}"
            f" ({self.schedule}), predicted"
            f" {1e3 * self.predicted.step_time_s:.3g} ms and"
            f" {self.predicted.peak_bytes_per_device / 2**20:.3g} MiB per device"
        )

    def __repr__(self) -> str:
        return f"<shardc.Plan: {self}>"

    @property
    def own_stages(self) -> tuple[StagePlan, ...]:
        """The stages without second copies."""
        return self.stages[: len(self.stages) // self.num_replicas]

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """The device groups, in order of their first stage."""
        meshes = (stage.mesh for stage in self.stages)
        return device_groups(enumerate(meshes), self.cluster)

    @property
    def terms(self) -> Terms:
        """Breakdown of the predicted step time."""
        meshes = [stage.mesh for stage in self.stages]
        return split_step(self.predicted.step_time_s, meshes, self.stages)

    def judged(self, name: str) -> Alternative:
        """The plan among alternatives; `name` is its proposer."""
        return Alternative(
            name,
            self.num_microbatches,
            self.schedule,
            tuple(stage.mesh.shape for stage in self.own_stages),
            tuple(len(stage.layers) for stage in self.own_stages),
            exact=self.terms,
            by_hand=any(note.code is NoteCode.BY_HAND for note in self.notes),
        )

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON, atomically; InputError (SHARDC-180) if that fails."""
        own = msgspec.structs.replace(self, from_cache=False)
        with writing("the plan", path):
            write_whole(path, msgspec.json.format(msgspec.json.encode(own), indent=1))

    @staticmethod
    def load(path: str | Path) -> "Plan":
        """Reads a plan that `save` wrote; PlanError (SHARDC-200) if it is not one.

        A plan is data, whatever its origin: nothing in it is executed, opened or written.
        """
        try:
            plan = msgspec.json.decode(read_data(path), type=Plan)
            check_sound(plan)
            return plan
        except BAD_DATA as error:
            raise PlanError(
                f"'{path}' is not a plan: {error}",
                where=str(path),
                help="make one with `shardc plan FILE.mlir --cluster NAME -o plan.json`",
            ) from error
        except PlanError as error:
            error.where = str(path)
            raise

    def fullest(self) -> tuple[DeviceGroup, int]:
        """The group of the fullest devices, and the peak bytes of each of these."""
        peaks = [stage.peak_bytes for stage in self.stages]

        def share(group: DeviceGroup) -> tuple[float, tuple[int, int]]:
            used = group.total(peaks) / (group.memory_bytes or 1)
            return used, max((peaks[stage], -stage) for stage in group.stages)

        group = max(self.groups, key=share)
        return group, group.total(peaks)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


ROUNDING = 1e-6  # relative difference that another order of additions may cause


def check_bounds(plan: Plan) -> None:
    """Asserts that no lower bound exceeds its value; called for every new plan."""
    check_below(
        (plan.lower_bound, plan.objective),
        (plan.objective, plan.predicted.step_time_s),
        *((stage.lower_bound, stage.objective) for stage in plan.stages),
        *((each.lower_bound_s, each.step_time_s) for each in plan.schedules),
    )


def check_below(*bounds: tuple[float, float]) -> None:
    """Asserts of pairs of a lower bound and its value, in seconds, that no bound is above."""
    for bound, value in bounds:
        assert bound <= value * (1 + ROUNDING), f"{bound:g} s is not a lower bound of {value:g} s"


MOST = 1_000_000  # microbatches, devices, layers: far beyond any machine
MOST_NAME = 200  # characters of an axis name


def check_sound(plan: Plan) -> None:
    """Raises PlanError (SHARDC-200) if the numbers of a plan are inconsistent or out of range.

    A plan that passes is data of reasonable size. Whether it belongs to a program is checked when
    its decisions are applied.
    """
    counts = {
        "num_stages": plan.num_stages,
        "num_microbatches": plan.num_microbatches,
        "num_chunks": plan.num_chunks,
        "num_replicas": plan.num_replicas,
        "num_slices": plan.num_slices,
    }
    for name, count in counts.items():
        _check(1 <= count <= MOST, f"{name} is {count}")
    wanted = plan.num_stages * plan.num_chunks * plan.num_replicas
    _check(len(plan.stages) == wanted, f"it has {len(plan.stages)} stages, but declares {wanted}")
    for number, stage in enumerate(plan.stages):
        _check_mesh(stage.mesh, f"stage {number}")
        _check(all(0 <= n <= MOST for n in stage.layers), f"stage {number} has a negative layer")
        _check(0 <= stage.recompute <= MOST, f"stage {number} has recompute={stage.recompute}")
    for name, numbers in (
        ("batch_arguments", plan.batch_arguments),
        ("batch_dims", plan.batch_dims),
        ("loop_cuts", plan.loop_cuts),
    ):
        _check(all(0 <= n <= MOST for n in numbers), f"{name} are {list(numbers[:5])}")
    same = len(plan.batch_dims) in (0, len(plan.batch_arguments))
    _check(same, "batch_arguments and batch_dims differ in length")
    _check(not plan.fingerprint or plan.fingerprint.isalnum(), "the fingerprint is not a digest")


def _check_mesh(mesh: Mesh, where: str) -> None:
    names = [name for name, _ in mesh.axes]
    fine = all(name.isprintable() and 0 < len(name) <= MOST_NAME for name in names)
    _check(fine and len(set(names)) == len(names), f"the axes of {where} have invalid names")
    _check(all(1 <= size <= MOST for size in mesh.shape), f"an axis of {where} has no devices")
    ids = mesh.device_ids
    _check(math.prod(mesh.shape) == len(ids), f"the mesh of {where} has {len(ids)} devices")
    _check(all(0 <= n < MOST for n in ids), f"a device of {where} has an invalid number")
    _check(len(set(ids)) == len(ids), f"the mesh of {where} repeats a device")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise PlanError(f"not a valid plan: {what}", help="plan again")
