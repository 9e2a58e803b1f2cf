"""What a user may request of the planner."""

from typing import Literal

import msgspec

Auto = Literal["auto"]
EqualLayers = Literal["relaxed", "tied", "free"]

TIME_LIMIT_S = 600.0  # work is counted, so that only a very busy machine reaches it


class PlanOptions(msgspec.Struct, frozen=True):
    """Requests and limits; "auto" leaves a choice to the planner.

    Attributes:
        stages: pipeline stages; 1 means no pipeline.
        microbatches: into how many equal parts the batch is cut.
        schedule: the name of a schedule, or "auto".
        chunks: stages that each device group runs, where the schedule leaves a choice.
        slices: token slices of each microbatch, where the schedule cuts sequences.
        mesh: shape of every stage's mesh such as (2, 4), or "auto".
        mesh_axes: names of its axes; () for x, y, z, w.
        batch_args: flat positions of the arguments that hold the batch; None: found by analysis.
        memory_limit_bytes: per device; None: the cluster's.
        time_limit_s: for the whole planning.
        seed: of the solver.
        equal_layers: "relaxed": in large programs equal layers first share one set of shardings,
            and part where that is needed to come close to the optimum; "tied": they share it in the
            plan; "free": each layer has its own from the start.
        late_sums: axes over which gradients stay partial sums until all microbatches have run.
        lowering: "local" (shardc's own per-device programs) or "xla" (annotated modules).
        early_updates: a stage updates its state as soon as its lane has come there, though other
            stages may still fail; False: behind all other actions of the step.
    """

    stages: int | Auto = "auto"
    microbatches: int | Auto = "auto"
    schedule: str = "auto"
    chunks: int | Auto = "auto"
    slices: int | Auto = "auto"
    mesh: tuple[int, ...] | Auto = "auto"
    mesh_axes: tuple[str, ...] = ()
    batch_args: tuple[int, ...] | None = None
    memory_limit_bytes: int | None = None
    time_limit_s: float = TIME_LIMIT_S
    seed: int = 0
    equal_layers: EqualLayers = "relaxed"
    late_sums: tuple[str, ...] = ()
    lowering: Literal["local", "xla"] = "local"
    early_updates: bool = False
