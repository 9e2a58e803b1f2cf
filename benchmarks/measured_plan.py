"""One measured run as a plan by hand: compiled, and priced by the cost model as any plan is."""

import math
from dataclasses import dataclass

import jax
from measured_gpt import Gpt, step_of

import shardc
from shardc import compiler
from shardc.analysis.stages.layers import layer_positions
from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of, place
from shardc.ir.copy import copy_module
from shardc.options import PlanOptions
from shardc.plan.shape import Shape
from shardc.planner.candidate import Candidate, plan_exactly
from shardc.planner.proposal import Proposal

NO_LIMIT = 1 << 50  # bytes: it did run


@dataclass(frozen=True)
class Run:
    """A row of a file of runs.

    Attributes:
        tensor, data, pipeline: sizes whose product is the number of devices.
        chunks: stages per device group; above 1 the schedule is interleaved 1F1B.
        measured_ms: None where it is not known.
    """

    gpt: Gpt
    num_devices: int
    microbatch: int
    pipeline: int
    chunks: int = 1
    measured_ms: float | None = None

    @property
    def num_microbatches(self) -> int:
        return self.gpt.batch // (self.gpt.data * self.microbatch)

    @property
    def alike(self) -> tuple[int, ...]:
        """Equal for runs of one model, number of devices and batch."""
        gpt = self.gpt
        return gpt.layers, gpt.hidden, gpt.heads, gpt.length, gpt.batch, self.num_devices


def planned(run: Run, cluster: Cluster) -> Candidate:
    """The run through the whole compiler.

    Tensor ranks are neighbours, then data ranks, then stages, as Megatron places them; stages have
    equal shares of the layers; gradients are summed over the data ranks once per step.

    Raises:
        ShardcError: the run is not possible.
    """
    gpt = run.gpt
    cluster = cluster.with_devices(run.num_devices)
    step, arguments, shardings = step_of(gpt)
    lowered = shardc.jit(
        step,
        donate_argnums=0,
        in_shardings=shardings,
        out_shardings=(shardings[0], None),
        cluster=cluster,
        mesh=gpt.mesh,
    ).lower(*arguments)
    module = copy_module(lowered.imported.module)
    compiler.prepare(module)
    stages, count = run.pipeline * run.chunks, run.num_microbatches
    loop_cuts = compiler.even_loop_cuts(module, stages) if stages > 1 else ()
    last = len(jax.tree.leaves(arguments))
    batch = (last - 2, last - 1)
    split = compiler.split(module, count, batch, (0, 0), loop_cuts)
    with split.context:
        cuts = tuple(layer_positions(split.operation, exactly=stages)[1:])
        size = gpt.tensor * gpt.data
        axes = {name: n for name, n in (("data", gpt.data), ("tensor", gpt.tensor)) if n > 1}
        shape = tuple(axes.values()) or (1,)
        meshes = [
            mesh_of(shape, range(first, first + size), tuple(axes))
            for first in place(cluster, [size] * run.pipeline)
        ]
        schedule = "1f1b" if run.chunks == 1 else "interleaved-1f1b"
        stage_meshes = tuple(meshes * run.chunks)
        wanted = Shape(count, cuts, stage_meshes, schedule, batch, loop_cuts, run.chunks)
        return plan_exactly(
            compiler.outline(split, cuts),
            Proposal(wanted, math.inf, tuple((stage,) for stage in range(stages))),
            cluster,
            PlanOptions(memory_limit_bytes=NO_LIMIT, late_sums=("data",)),
            time_limit_s=60.0,
            effort_s=20.0,
            gap=0.01,
        )
