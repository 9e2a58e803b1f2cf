"""What layers cost on submeshes, and the pipelines that follow from it.

Every layer is cut out as a stage of its own and planned without a memory limit on each view of each
submesh; equal layers are solved once. A stage of layers i..j then costs the sum of its layers, and
fits if its state and stash, split evenly, do.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.analysis.program.cloned_ops import cloneable_ops
from shardc.analysis.program.def_use import dataflow, step_facts
from shardc.analysis.program.state import state_aliases
from shardc.analysis.stages.forward_backward import forward_ops
from shardc.analysis.stages.stage_cuts import balanced_cuts, layer_starts
from shardc.analysis.stages.stage_work import work_of_forward_ops
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.compiler import Shape, outline, shard
from shardc.cost.collectives import transfer_s
from shardc.cost.links import transfer_link
from shardc.cost.submeshes import mesh_of, mesh_views, place, submesh_sizes
from shardc.errors import InfeasibleError, StageError
from shardc.ir.attributes import KIND, NUM_MICROBATCHES, get_int, get_str
from shardc.ir.context import Module
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, main_function
from shardc.options import PlanOptions
from shardc.plan.executable import ValueSpec
from shardc.plan.layout import Mesh
from shardc.solver.interrupt import poll_between
from shardc.solver.pipeline.stages import plan_stages

ESTIMATE_GAP, ESTIMATE_EFFORT_S = 0.1, 4.0  # of solving one layer on one view
MOST_LAYERS = 8  # that the stage planner tells apart; Alpa used 6 to 16


@dataclass(frozen=True)
class Proposal:
    """A shape of the pipeline and what it may take; `layers` per stage."""

    shape: Shape
    step_time_s: float
    layers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Crossing:
    """What stages send to each other.

    Attributes:
        num_bytes: per microbatch, over all boundaries.
        slowest_s: seconds of the slowest boundary for one direction of one microbatch.
        boundary_bytes: (from, to) -> bytes per microbatch.
    """

    num_bytes: int
    slowest_s: float
    boundary_bytes: dict[tuple[int, int], int]


@dataclass(frozen=True)
class LayerTable:
    """Costs of the layers.

    Attributes:
        starts: position of the first forward op of each layer.
        seconds: shape of a view -> per layer the seconds of forward and backward of a microbatch.
        once_s: shape of a view -> per layer the seconds of what runs once per step.
        state_bytes: per layer: arguments and accumulators.
        stash_bytes: per layer, of one microbatch.
        boundary_bytes: behind each layer but the last, of one microbatch, the larger direction.
    """

    starts: tuple[int, ...]
    seconds: dict[tuple[int, ...], np.ndarray]
    once_s: dict[tuple[int, ...], np.ndarray]
    state_bytes: np.ndarray
    stash_bytes: np.ndarray
    boundary_bytes: tuple[int, ...]

    def held_bytes(self, first: int, last: int, in_flight: int) -> float:
        """State of layers first..last and their stash of `in_flight` microbatches, all devices."""
        part = slice(first, last + 1)
        return float(self.state_bytes[part].sum() + in_flight * self.stash_bytes[part].sum())

    def for_microbatches(
        self, ratio: float, split_module: Module, options: PlanOptions
    ) -> "LayerTable":
        """The same layers when a microbatch is `ratio` times as large."""
        return LayerTable(
            layer_positions(split_module, options),
            {shape: each * ratio for shape, each in self.seconds.items()},
            self.once_s,
            self.state_bytes,
            self.stash_bytes * ratio,
            tuple(int(b * ratio) for b in self.boundary_bytes),
        )

    def best_view(
        self, first: int, last: int, size: int, num_microbatches: int
    ) -> tuple[float, tuple[int, ...]]:
        """Cheapest view of `size` devices for layers first..last and its seconds a microbatch."""
        return min(
            (
                float(each[first : last + 1].sum())
                + float(self.once_s[shape][first : last + 1].sum()) / num_microbatches,
                shape,
            )
            for shape, each in self.seconds.items()
            if math.prod(shape) == size
        )


def layer_table(
    split_module: Module,
    cluster: Cluster,
    mesh_shape: tuple[int, ...] | None,
    options: PlanOptions,
    seconds_left: float,
) -> LayerTable:
    """Plans every layer on the views of the submeshes that a stage may get.

    Views of equal stages come first, and of these the ones that lie along nodes; when
    `seconds_left` are spent, the table ends with those it has.
    """
    deadline_s = time.monotonic() + seconds_left
    starts = layer_positions(split_module, options)
    views = (
        [mesh_of(mesh_shape, range(math.prod(mesh_shape)), options.mesh_axes)]
        if mesh_shape is not None
        else _views(cluster, options)
    )
    seconds: dict[tuple[int, ...], np.ndarray] = {}
    once: dict[tuple[int, ...], np.ndarray] = {}
    outlined = outline(split_module, starts[1:])
    state, stash, boundary = _bytes_of_layers(outlined, len(starts))
    _drop_updates(outlined)
    longest_s = 0.0
    for view in views:
        poll_between()
        start_s = time.monotonic()
        if seconds and start_s + longest_s > deadline_s:
            break
        _, reports = shard(
            outlined,
            [view] * len(starts),
            cluster,
            stashes=[1] * len(starts),
            memory_limit_bytes=1 << 62,
            time_limit_s=max((deadline_s - start_s) / 2, 1.0),
            effort_s=ESTIMATE_EFFORT_S,
            seed=options.seed,
            gap=ESTIMATE_GAP,
        )
        seconds[view.shape] = np.array(
            [r.seconds.get("forward", 0.0) + r.seconds.get("backward", 0.0) for r in reports]
        )
        once[view.shape] = np.array(
            [r.seconds.get("before", 0.0) + r.seconds.get("update", 0.0) for r in reports]
        )
        longest_s = max(longest_s, time.monotonic() - start_s)
    return LayerTable(starts, seconds, once, state, stash, boundary)


def even_proposals(
    split_module: Module,
    cluster: Cluster,
    options: PlanOptions,
    num_microbatches: int,
    schedule: str,
) -> list[Proposal]:
    """Stages of equal FLOPs on equal submeshes, one proposal for each view of the submesh."""
    assert isinstance(options.stages, int)
    count = options.stages
    if options.mesh != "auto":
        size = math.prod(options.mesh)
        views = [mesh_of(options.mesh, range(size), options.mesh_axes)]
    else:
        size = max(n for n in submesh_sizes(cluster) if n * count <= cluster.num_devices)
        views = mesh_views(cluster, 0, size)
    cuts = tuple(layer_positions(split_module, options, exactly=count)[1:])
    firsts = place(cluster, [size] * count)
    return [
        Proposal(
            Shape(
                num_microbatches,
                cuts,
                tuple(mesh_of(view.shape, range(d, d + size), options.mesh_axes) for d in firsts),
                schedule,
                options.batch_args,
            ),
            0.0,
            tuple((stage,) for stage in range(count)),
        )
        for view in views
    ]


def _drop_updates(outlined: Module) -> None:
    """Removes the update functions: they run once per step, and cost every shape about the same."""
    with outlined.context:
        for function in list(functions(outlined.operation)):
            if get_str(function, KIND) == "update":
                function.erase()


def _views(cluster: Cluster, options: PlanOptions) -> list[Mesh]:
    """Views of the submeshes of a pipeline, the most promising first."""
    sizes = [n for n in submesh_sizes(cluster) if n < cluster.num_devices]
    if isinstance(options.stages, int) and cluster.num_devices % options.stages == 0:
        sizes = [cluster.num_devices // options.stages]

    def doubt(view: Mesh) -> tuple[bool, bool, int]:
        size = math.prod(view.shape)
        inside = view.shape == (size,) and size <= cluster.num_devices_per_node
        along = inside or view.shape[-1] == cluster.num_devices_per_node
        return cluster.num_devices % size != 0, not along, -size

    return sorted((v for size in sizes for v in mesh_views(cluster, 0, size)), key=doubt)


def layer_positions(
    split_module: Module, options: PlanOptions, exactly: int | None = None
) -> tuple[int, ...]:
    """Position of the first forward op of each layer in a split @main.

    Args:
        exactly: so many layers, of equal FLOPs; None: as many as the planner tells apart.
    """
    main = main_function(split_module.operation)
    flow = dataflow(main)
    facts = step_facts(main, flow)
    aliases = state_aliases(main)
    forward = forward_ops(flow, facts, set(aliases.values()))
    if forward is None:
        error = StageError(
            "no result tells where the forward pass ends, so there is nothing to cut into stages",
            code="SHARDC-161",
            help="return the loss from the step, or use stages=1",
        )
        error.most = 1
        raise error
    order = sorted(forward - cloneable_ops(flow, facts, set(aliases)))
    if not order:
        error = StageError(
            "the program computes nothing that could be cut into stages",
            code="SHARDC-161",
            help="use stages=1",
        )
        error.most = 1
        raise error
    if exactly is not None:
        count = get_int(split_module.operation, NUM_MICROBATCHES) or 1
        work = work_of_forward_ops(flow, facts, forward, aliases, order, count)
        return (order[0], *balanced_cuts(flow, order, exactly, work))
    asked = options.stages if isinstance(options.stages, int) else 1
    return tuple(layer_starts(flow, order, max(MOST_LAYERS, asked), at_least=asked))


def _bytes_of_layers(
    outlined: Module, num_layers: int
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """State and stash of each layer, and what crosses each boundary, in bytes of whole values."""
    state, stash = np.zeros(num_layers), np.zeros(num_layers)
    counted: set[tuple[int, str]] = set()
    made: dict[str, tuple[int, str, int]] = {}
    ahead, back = [0] * num_layers, [0] * num_layers
    values = function_values(outlined.operation)
    for stage, kind, _, results in values:
        for spec in results:
            if spec.per_microbatch:
                made[spec.value] = (stage, kind, spec.num_bytes)
    for stage, kind, args, _ in values:
        for spec in args:
            key = (stage, spec.value)
            if key in counted:
                continue
            counted.add(key)
            if spec.value.startswith(("arg", "acc")):
                state[stage] += spec.num_bytes
            elif spec.value in made:
                source, source_kind, num_bytes = made[spec.value]
                if kind == "backward" and source_kind == "forward":
                    stash[stage] += num_bytes
                for between in range(min(source, stage), max(source, stage)):
                    (ahead if source < stage else back)[between] += num_bytes
    return state, stash, tuple(max(a, b) for a, b in zip(ahead, back, strict=True))[:-1]


def propose(
    table: LayerTable,
    cluster: Cluster,
    options: PlanOptions,
    num_microbatches: int,
    schedule: str,
    limit: int,
) -> list[Proposal]:
    """The best pipeline for each number of stages (or for the one asked for)."""
    num_layers = len(table.starts)
    sizes = sorted({math.prod(shape) for shape in table.seconds})
    asked = options.stages if isinstance(options.stages, int) else None
    most = cluster.num_devices // (sizes[0] if options.mesh != "auto" else 1)
    counts = (
        [asked]
        if asked is not None
        else [n for n in (2, 4, 8, 16, 32, 64) if n <= min(num_layers, most)]
    )
    half = max(cluster.num_devices // 2, 1)
    link = transfer_link(
        cluster, mesh_of((half,), range(half)), mesh_of((half,), range(half, 2 * half))
    )

    def cost(first: int, last: int, m: int, after: int) -> float:
        in_flight = num_microbatches if schedule == "gpipe" else min(num_microbatches, after + 1)
        if table.held_bytes(first, last, in_flight) > limit * sizes[m]:
            return math.inf
        return table.best_view(first, last, sizes[m], num_microbatches)[0]

    found = []
    for count in counts:
        total = cluster.num_devices
        if options.mesh != "auto":
            total = count * sizes[0]
        try:
            pipeline = plan_stages(
                cost,
                num_layers=num_layers,
                num_devices=total,
                submesh_sizes=sizes,
                num_microbatches=num_microbatches,
                transfer_s=[transfer_s(link, b) for b in table.boundary_bytes],
                num_stages=count,
                devices_per_host=cluster.num_devices_per_node,
            )
        except InfeasibleError:
            continue
        except StageError:
            if asked is not None:
                raise
            continue  # the time was up before there was a price for smaller submeshes
        found.append(
            _proposal(
                pipeline.stages,
                pipeline.step_time_s,
                table,
                cluster,
                options,
                num_microbatches,
                schedule,
            )
        )
    return found


def _proposal(
    stages: Sequence[tuple[int, int, int]],
    step_time_s: float,
    table: LayerTable,
    cluster: Cluster,
    options: PlanOptions,
    num_microbatches: int,
    schedule: str,
) -> Proposal:
    firsts = place(cluster, [size for _, _, size in stages])
    placed = tuple(
        mesh_of(
            table.best_view(first, last, size, num_microbatches)[1],
            range(device, device + size),
            options.mesh_axes,
        )
        for (first, last, size), device in zip(stages, firsts, strict=True)
    )
    cuts = tuple(table.starts[first] for first, _, _ in stages[1:])
    layers = tuple(tuple(range(first, last + 1)) for first, last, _ in stages)
    shape = Shape(num_microbatches, cuts, placed, schedule, options.batch_args)
    return Proposal(shape, step_time_s, layers)


def crossing(outlined: Module, cluster: Cluster) -> Crossing:
    """What the stages of an outlined module send to each other, and how long it takes."""
    placed = meshes(outlined.operation)
    values: list[tuple[int, str, tuple[ValueSpec, ...], tuple[ValueSpec, ...]]] = function_values(
        outlined.operation
    )
    home = {
        spec.value: stage
        for stage, _, _, results in values
        for spec in results
        if spec.per_microbatch
    }
    sent: dict[tuple[int, int], int] = {}
    seen: set[tuple[int, str]] = set()
    for stage, _, args, _ in values:
        for spec in args:
            source = home.get(spec.value, stage)
            if source != stage and (stage, spec.value) not in seen:
                seen.add((stage, spec.value))
                sent[source, stage] = sent.get((source, stage), 0) + spec.num_bytes
    slowest = max(
        (
            transfer_s(transfer_link(cluster, placed[f"stage{a}"], placed[f"stage{b}"]), num_bytes)
            for (a, b), num_bytes in sent.items()
        ),
        default=0.0,
    )
    return Crossing(sum(sent.values()), slowest, sent)
