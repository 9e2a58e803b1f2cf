"""The shape of a pipeline, which the planner chooses and the compiler builds."""

from collections.abc import Sequence

import msgspec

from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute

# What a stage keeps of what the program computes again costs this much, relative to the time in
# which its device writes it and reads it.
PRICES: dict[Recompute, float] = {"none": 0.3, "selective": 3.0}


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
        recompute: for each stage the microbatches in flight for which recomputation is chosen, in
            the form that `shardc-plan-residency` takes; (): no recomputation.
        keep_prices: for each stage the price of keeping what the program computes again, in the
            form that `shardc-keep-forward-values` takes; (): every stage does as the program says.
        gather: axis over which parameters lie sharded and are gathered by actions of their own;
            "": none are.
        values: instead, for each stage the names of the values that it keeps.
    """

    num_microbatches: int
    cuts: tuple[int, ...]
    meshes: tuple[Mesh, ...]
    schedule: str
    batch_args: tuple[int, ...] | None = None
    loop_cuts: tuple[int, ...] = ()
    num_chunks: int = 1
    recompute: tuple[int, ...] = ()
    num_replicas: int = 1
    num_slices: int = 1
    keep_prices: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
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
        held = [n if each == "full" else 0 for each, n in zip(recompute, in_flight, strict=True)]
        prices = [PRICES.get(each, 0.0) for each in recompute]
        return msgspec.structs.replace(
            self,
            recompute=tuple(held) if any(held) else (),
            keep_prices=tuple(prices) if any(prices) else (),
        )

    @staticmethod
    def of(plan: Plan) -> "PipelineShape":
        """The shape of a plan."""
        own = plan.own_stages
        return PipelineShape(
            plan.num_microbatches,
            tuple(stage.cut for stage in own[1:]),
            tuple(stage.mesh for stage in plan.stages),
            plan.schedule,
            plan.batch_arguments,
            plan.loop_cuts,
            plan.num_chunks,
            tuple(stage.recompute for stage in own),
            plan.num_replicas,
            plan.num_slices,
            values=tuple(
                tuple(each.value for each in stage.values if each.residency == "keep")
                for stage in own
            ),
            gather=plan.gather,
        )
