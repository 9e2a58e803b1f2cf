"""The shape of a pipeline, which the planner chooses and the compiler builds."""

import msgspec

from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh


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

    @property
    def num_stages(self) -> int:
        """Stages, each counted once."""
        return len(self.meshes) // self.num_replicas

    @property
    def own_meshes(self) -> tuple[Mesh, ...]:
        """The meshes of the stages, without second copies."""
        return self.meshes[: self.num_stages]

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
        )
