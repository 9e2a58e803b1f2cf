"""One measured run as a plan by hand, through the whole compiler; what it asks of its devices.

The stages between the first and the last differ in their number of layers only, and microbatches
in nothing: `Replay` compiles one stage of each kind for two microbatches, and each stage of the run
asks for what its like does. `planned` compiles every stage; what they ask for is the same.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
from measured_gpt import Gpt, step_of

import shardc
from shardc import compiler, cutting
from shardc.analysis.program.flops import is_heavy
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of, place
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.walk import main_function, ops
from shardc.options import PlanOptions
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked
from shardc.plan.program_graph import ProgramValues
from shardc.plan.shape import PipelineShape
from shardc.planner.candidate import Candidate, plan_exactly
from shardc.planner.proposal import Proposal

NO_LIMIT = 1 << 50  # bytes: it did run


@dataclass(frozen=True)
class Run:
    """A row of a file of runs.

    Attributes:
        gpt: with the global batch.
        num_devices: tensor x data x pipeline.
        chunks: stages per device group; above 1 the schedule is interleaved 1F1B.
        measured_ms: None where it is not known.
        stage_layers: of each stage; () = equal shares.
    """

    gpt: Gpt
    num_devices: int
    microbatch: int
    pipeline: int
    chunks: int = 1
    measured_ms: float | None = None
    stage_layers: tuple[int, ...] = ()

    @property
    def num_microbatches(self) -> int:
        return self.gpt.batch // (self.gpt.data * self.microbatch)

    @property
    def layers(self) -> tuple[int, ...]:
        """Of each stage."""
        many, stages = self.gpt.layers, self.pipeline * self.chunks
        equal = tuple((i + 1) * many // stages - i * many // stages for i in range(stages))
        return self.stage_layers or equal

    @property
    def schedule(self) -> str:
        return "1f1b" if self.chunks == 1 else "interleaved-1f1b"

    @property
    def alike(self) -> tuple[int, ...]:
        """Equal for runs of one model, number of devices and batch."""
        gpt = self.gpt
        return gpt.layers, gpt.hidden, gpt.heads, gpt.length, gpt.batch, self.num_devices

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.gpt.tensor, self.gpt.data, self.pipeline, self.chunks, self.microbatch


@dataclass(frozen=True)
class Asks:
    """What a run asks of its devices.

    Attributes:
        asked: of each stage, by kind of function.
        sent: (from, to, bytes) between neighbours in each microbatch, each byte once: tensor ranks
            hold the same and send a share each, which the receivers gather. Sources: Narayanan et
            al., SC 2021, 4.1 (scatter/gather); DeepSpeed, runtime/pipe/engine.py
            (pipe_partitioned, on by default); Alpa, OSDI 2022, section 6 (local all-gather).
        kept: by each device of a stage from a forward to its backward, in bytes.
    """

    asked: tuple[dict[FunctionKind, tuple[Asked, ...]], ...]
    sent: tuple[tuple[int, int, int], ...]
    kept: tuple[int, ...]


class Replay:
    """Runs through the compiler; those that share their stages share one compilation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._known: dict[Run, Asks] = {}

    def asks(self, run: Run) -> Asks:
        """What every stage of a run asks of each of its devices.

        Raises:
            ShardcError: the run is not possible.
        """
        last = len(run.layers) - 1
        kinds = [(i == last, i > 0, n) for i, n in enumerate(run.layers)]
        some = sorted(set(kinds))
        folded = replace(
            run,
            gpt=replace(
                run.gpt,
                layers=sum(n for *_, n in some),
                batch=run.gpt.data * run.microbatch * 2,
            ),
            pipeline=len(some),
            chunks=1,
            stage_layers=tuple(n for *_, n in some),
            measured_ms=None,
        )
        if folded not in self._known:
            self._known[folded] = asks(planned(folded, self.cluster))
        found = self._known[folded]
        num_bytes = max((n for *_, n in found.sent), default=0)
        ways = [*((i, i + 1) for i in range(last)), *((i + 1, i) for i in range(last))]
        return Asks(
            tuple(found.asked[some.index(kind)] for kind in kinds),
            tuple((a, b, num_bytes) for a, b in ways),
            tuple(found.kept[some.index(kind)] for kind in kinds),
        )


def asks(found: Candidate) -> Asks:
    """What the stages of a plan ask for."""
    with found.module.context:
        values = function_values(found.module)
    made = {spec.value: (each.stage, spec) for each in values for spec in each.results}
    sent: dict[tuple[int, int, str], int] = {}
    for each in values:
        for spec in each.args:
            source, held = made.get(spec.value, (each.stage, spec))
            if spec.per_microbatch and source != each.stage:
                sent[source, each.stage, spec.value] = held.num_bytes
    ways: dict[tuple[int, int], int] = {}
    for (source, target, _), num_bytes in sent.items():
        ways[source, target] = ways.get((source, target), 0) + num_bytes
    return Asks(
        tuple(report.asked for report in found.reports),
        tuple((a, b, n) for (a, b), n in ways.items()),
        tuple(_kept(values, stage, mesh) for stage, mesh in enumerate(found.shape.meshes)),
    )


def _kept(values: Sequence[ProgramValues], stage: int, mesh: Mesh) -> int:
    """Bytes of what the backward of a stage reads and its forward has read or made."""
    own = [each for each in values if each.stage == stage]
    forward = [each for each in own if each.kind == FunctionKind.FORWARD]
    known = {spec.value for each in forward for spec in (*each.args, *each.results)}
    read = {
        spec.value: spec.num_bytes // mesh.num_shards(spec.sharding.axes)
        for each in own
        if each.kind == FunctionKind.BACKWARD
        for spec in each.args
        if spec.per_microbatch and spec.value in known
    }
    return sum(read.values())


def meshes_of(run: Run, cluster: Cluster) -> tuple[Mesh, ...]:
    """Of each stage. Tensor ranks are neighbours, then data ranks, then stages, as Megatron places
    them."""
    gpt = run.gpt
    size = gpt.tensor * gpt.data
    axes = {name: n for name, n in (("data", gpt.data), ("tensor", gpt.tensor)) if n > 1}
    shape = tuple(axes.values()) or (1,)
    own = cluster.with_devices(run.num_devices)
    meshes = [
        mesh_of(shape, range(first, first + size), tuple(axes))
        for first in place(own, [size] * run.pipeline)
    ]
    return tuple(meshes * run.chunks)


def planned(run: Run, cluster: Cluster) -> Candidate:
    """The run through the whole compiler; gradients are summed over data ranks once per step.

    Raises:
        ShardcError: the run is not possible.
    """
    gpt = run.gpt
    meshes = meshes_of(run, cluster)
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
    last = len(jax.tree.leaves(arguments))
    batch = (last - 2, last - 1)
    loop_cuts = tuple(itertools.accumulate(run.layers[:-1]))
    split = cutting.split(
        module, run.num_microbatches, batch, (0, 0), loop_cuts, len(run.layers), cast_once=True
    )
    with split.context:
        cuts = _starts(split, len(run.layers))
        wanted = PipelineShape(
            run.num_microbatches, cuts, meshes, run.schedule, batch, loop_cuts, run.chunks
        )
        return plan_exactly(
            cutting.outline(split, cuts),
            Proposal(wanted, math.inf, tuple((stage,) for stage in range(len(run.layers)))),
            cluster,
            PlanOptions(memory_limit_bytes=NO_LIMIT, late_sums=("data",)),
            time_limit_s=60.0,
            effort_s=20.0,
            gap=0.01,
        )


def _starts(split: Module, stages: int) -> tuple[int, ...]:
    """Where stages begin, but the first: at their loop over layers; the backward ones come last."""
    loops = [
        i
        for i, op in enumerate(ops(main_function(split.operation)))
        if op.name == "stablehlo.while" and is_heavy(op)
    ]
    return tuple(loops[1:stages])
