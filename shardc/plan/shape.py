"""The shape of a pipeline, which the planner chooses and the compiler builds."""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from shardc.cluster import Cluster
from shardc.plan.decisions import Plan
from shardc.plan.layout import DeviceGroup, Mesh, StagePlacement, device_groups, placement
from shardc.plan.stages_spec import Recompute

# What a stage keeps of what the program computes again costs this much, relative to the time in
# which its device writes it and reads it.
PRICES: dict[Recompute, float] = {"none": 0.3, "selective": 3.0}
RULES: tuple[Recompute, ...] = get_args(Recompute)  # by what they keep, most first


class Residency(msgspec.Struct, frozen=True):
    """The forward values that a stage keeps for its backward pass.

    Attributes:
        recompute: the rule that says what it computes again, as in `StageSpec`.
        in_flight: under the rule "full", the number of microbatches in flight; otherwise 0.
        kept: instead of a rule, the names of the values that it keeps although the program
            computes them again (`ValuePlan.value`).
    """

    recompute: Recompute = "user"
    in_flight: int = 0
    kept: tuple[str, ...] = ()

    @property
    def keep_price(self) -> float:
        """The price of a kept value, in the form that `shardc-keep-forward-values` takes."""
        return PRICES.get(self.recompute, 0.0)


class Reuse(msgspec.Struct, frozen=True):
    """What a step computes once and holds for all microbatches, instead of computing it again.

    Attributes:
        cast_once: casts of parameters to narrower types.
        keep_price: what values cost that a sweep over the microbatches keeps for later ones, as in
            `Plan`; 0: none are kept.
        cluster: its device says what takes longer to compute again; None: a CPU.
    """

    cast_once: bool = False
    keep_price: float = 0.0
    cluster: Cluster | None = None

    @staticmethod
    def of(plan: Plan) -> "Reuse":
        """That of a plan."""
        return Reuse(plan.cast_once, plan.keep_price, plan.cluster)


class KeptBetween(msgspec.Struct, frozen=True):
    """Values that sweeps over the microbatches keep for later ones.

    Attributes:
        price: as in `Reuse`.
        count, num_bytes: of all microbatches together.
    """

    price: float
    count: int
    num_bytes: int


class PipelineShape(msgspec.Struct, frozen=True):
    """The shape of a pipeline: everything but the shardings.

    Attributes:
        num_microbatches: parts of the batch.
        cuts: for each stage but the first, the position of its first forward op in the split @main.
        meshes: one per stage; stages of one device group have equal meshes. Second copies follow.
        schedule: name of the schedule.
        num_chunks: stages per device group, of one copy.
        num_replicas: copies of each stage.
        num_slices: token slices of each microbatch.
        batch_args: flat arguments that are split; None: found by analysis.
        loop_cuts: where loops over layers are cut, in the form that `shardc-cut-loops` takes;
            `cuts` are positions after that.
        residency: of each stage; (): every stage does as the program says.
        gather: axis over which parameters lie sharded and are gathered by actions of their own;
            "": none are.
    """

    num_microbatches: int
    cuts: tuple[int, ...]
    meshes: tuple[Mesh, ...]
    schedule: str
    batch_args: tuple[int, ...] | None = None
    loop_cuts: tuple[int, ...] = ()
    num_chunks: int = 1
    residency: tuple[Residency, ...] = ()
    num_replicas: int = 1
    num_slices: int = 1
    gather: str = ""

    @property
    def num_stages(self) -> int:
        """Stages, each counted once."""
        return len(self.meshes) // self.num_replicas

    @property
    def own_meshes(self) -> tuple[Mesh, ...]:
        """The meshes of the stages, without second copies."""
        return self.meshes[: self.num_stages]

    def recomputing(
        self, recompute: Sequence[Recompute], in_flight: Sequence[int]
    ) -> "PipelineShape":
        """The shape whose stages compute these values again.

        Args:
            recompute, in_flight: for each stage; the latter in microbatches.
        """
        return self._with(
            Residency(each, many if each == "full" else 0)
            for each, many in zip(recompute, in_flight, strict=True)
        )

    def _with(self, residency: Iterable[Residency]) -> "PipelineShape":
        found = tuple(residency)
        as_written = all(each == Residency() for each in found)
        return msgspec.structs.replace(self, residency=() if as_written else found)

    def residency_of(self, stage: int) -> Residency:
        """Of a stage; second copies do as their stage."""
        return self.residency[stage] if self.residency else Residency()

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """The device groups, in order of their first stage."""
        return device_groups(enumerate(self.meshes))

    @property
    def placements(self) -> list[StagePlacement]:
        """What each stage is, second copies included."""
        return [placement(number, self.num_stages) for number in range(len(self.meshes))]

    @property
    def recomputes_fully(self) -> bool:
        """Whether some stage recomputes all but what crosses the cuts between segments."""
        return any(each.in_flight for each in self.residency)

    @staticmethod
    def of(plan: Plan) -> "PipelineShape":
        """The shape of a plan."""
        own = plan.own_stages
        shape = PipelineShape(
            plan.num_microbatches,
            tuple(stage.cut for stage in own[1:]),
            tuple(stage.mesh for stage in plan.stages),
            plan.schedule,
            plan.batch_arguments,
            plan.loop_cuts,
            plan.num_chunks,
            num_replicas=plan.num_replicas,
            num_slices=plan.num_slices,
            gather=plan.gather,
        )
        return shape._with(
            Residency(
                "full" if stage.recompute else "user",
                stage.recompute,
                tuple(each.value for each in stage.values if each.residency == "keep"),
            )
            for stage in own
        )
