"""The request for a plan, and how much of it a program allows."""

import math
from dataclasses import replace

import msgspec

from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal, RefusalReason
from shardc.analysis.program.arguments import state_arguments
from shardc.analysis.program.flops import op_cost
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Cluster
from shardc.errors import PlanError, StageError
from shardc.ir.attributes import SWEEPS, get_str, phase_of
from shardc.ir.context import Module
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import RETURN, body, main_function, ops
from shardc.options import PlanOptions
from shardc.plan.function_kind import Phase
from shardc.planner.split_cache import Splits
from shardc.solver.solve import LimitError

MOST_EARLIER = 0.5  # share of the FLOPs that sweeps before a pipeline may have


def step_flops(split_module: Module, num_microbatches: int) -> int:
    """FLOPs of a step of a module returned by `split`."""
    with split_module.context:
        return sum(
            op_cost(op).flops * (num_microbatches if phase_of(op) is Phase.BODY else 1)
            for op in ops(main_function(split_module.operation))
        )


def print_request(cluster: Cluster, options: PlanOptions) -> str:
    """The request in lines for a report."""
    return "\n".join(msgspec.json.encode(each).decode() for each in (cluster, options))


def state_too_large(module: Module, cluster: Cluster, asked_bytes: int | None) -> LimitError | None:
    """Why no plan fits, if the state is larger than all devices together.

    Args:
        module: prepared.
        asked_bytes: the limit of a device, if one is requested.
    """
    limit = most_memory(cluster, asked_bytes)
    with module.context:
        main = main_function(module.operation)
        arguments = [body(main).arguments[a] for a in state_arguments(main)]
        read = [a for a in arguments if any(use.owner.name != RETURN for use in a.uses)]
        least = -(-sum(map(num_bytes, read)) // cluster.num_devices)
    if least <= limit:
        return None
    error = LimitError(limit, None, least)
    error.message = (
        f"no plan fits into {limit:,} bytes per device: the state alone, divided evenly over"
        f" {cluster.num_devices} device{'s' * (cluster.num_devices > 1)}, takes {least:,} bytes of"
        f" each, {error.missing_bytes:,} too many"
    )
    error.help = ways_out(module, error, limit, cluster.num_devices)
    return error


def most_memory(cluster: Cluster, asked_bytes: int | None) -> int:
    """The bytes of a device: the limit that is requested, or those of the largest device."""
    own = [part.device.memory_bytes for part, _ in cluster.parts]
    return asked_bytes or max(own, default=cluster.device.memory_bytes)


def check_stages(cluster: Cluster, options: PlanOptions, of_program: bool) -> None:
    """Refuses more stages, or larger stage meshes, than the cluster has devices for.

    Args:
        of_program: the mesh is that of the program's own shardings.
    Raises:
        StageError: SHARDC-162, more stages than devices.
        PlanError: SHARDC-101, the stages need more devices than there are.
    """
    asked, devices = options.stages, cluster.num_devices
    if asked != "auto" and asked > devices:
        raise StageError(
            f"{asked} stages are requested, and cluster '{cluster.name}' has {devices}"
            f" device{'s' * (devices != 1)}",
            help=f"request at most {devices} stages, or use a larger cluster",
            code="SHARDC-162",
        )
    size = 1 if options.mesh == "auto" else math.prod(options.mesh)
    if asked != "auto" and asked > 1 and asked * size > devices:
        assert options.mesh != "auto"
        axes = zip(options.mesh_axes, options.mesh, strict=False)
        named = ", ".join(f"{name}={length}" for name, length in axes)
        raise PlanError(
            f"{asked} stages on meshes of {size} devices"
            f"{f' ({named}, the mesh of the shardings in the program)' if of_program else ''} need"
            f" {asked * size}, and cluster '{cluster.name}' has {devices}",
            help="use fewer stages, or a larger cluster, or give the shardings a smaller mesh: that"
            " of jax.set_mesh, or of a NamedSharding"
            if of_program
            else "use fewer stages, a smaller mesh or a larger cluster",
            code="SHARDC-101",
        )


def most_microbatches(splits: Splits, options: PlanOptions) -> tuple[int, MicrobatchRefusal | None]:
    """The most microbatches possible, up to the request, and why there are no more.

    Raises:
        MicrobatchError: SHARDC-141, the named batch arguments cannot be the batch.
    """
    assert options.microbatches != "auto"
    count, first = options.microbatches, None
    while count > 1:
        refusal = splits.refusal(count) or _earlier_sweeps(splits, count, options)
        if refusal is None:
            break
        if refusal.hindrance is RefusalReason.NO_BATCH and options.batch_args is not None:
            raise refusal.error()
        first = first or refusal
        count = max((other for other in refusal.others if other < count), default=1)
    return count, first


def _earlier_sweeps(splits: Splits, count: int, options: PlanOptions) -> MicrobatchRefusal | None:
    """Refuses requested microbatches in stages if earlier sweeps are most of the work: each
    stage runs its part of them alone, before the pipeline begins."""
    module = splits.whole(count)
    why = get_str(module.operation, SWEEPS)
    if why is None or options.stages in (1, "auto"):
        return None
    share = 1 - step_flops(splits.whole(1), 1) / max(step_flops(module, count), 1)
    if share <= MOST_EARLIER:
        return None
    return MicrobatchRefusal(
        RefusalReason.WHOLE_BATCH,
        f"with more, {why}; these sweeps, before the pipeline, are {share:.0%} of the FLOPs",
        help="use stages=1 or microbatches=1",
    )


def most_stages(
    splits: Splits, options: PlanOptions, refusal: StageRefusal
) -> tuple[str, int, MicrobatchRefusal | StageRefusal]:
    """What to change, to how many, and why, if the program has fewer stages than requested:
    microbatches to one if that allows more stages, or, if their number is open, to one for each
    piece in which the step takes the batch; otherwise the stages."""
    too_few = _too_few_layers(splits, options, refusal.most)
    if too_few is not None:
        return "microbatches", 1, too_few
    pieces = _stages_inside_pieces(splits, options)
    if pieces is None:
        return "stages", refusal.most, refusal
    if options.microbatches == "auto":
        reason = f"with fewer, {refusal.message}"
        return "microbatches", pieces, replace(refusal, message=reason)
    way_out = f"{refusal.message}; microbatches={pieces} allows {options.stages} stages"
    return "stages", refusal.most, replace(refusal, message=way_out)


def _stages_inside_pieces(splits: Splits, options: PlanOptions) -> int | None:
    """The number of microbatches that each take one piece of the batch, if a loop over pieces
    leaves too few layers for the stages with fewer, and not with this number."""
    pieces, asked = splits.batch_parts, options.stages
    assert asked != "auto"
    if pieces in (1, splits.rows, options.microbatches):
        return None
    if splits.refusal(pieces) or _earlier_sweeps(splits, pieces, options):
        return None
    chunks = 1 if options.chunks == "auto" else options.chunks
    return None if isinstance(splits.even_stages(pieces, asked * chunks), StageRefusal) else pieces


def _too_few_layers(splits: Splits, options: PlanOptions, most: int) -> MicrobatchRefusal | None:
    """Why a single microbatch allows more than `most` stages; None if it does not. With several,
    sums over the batch leave few layers in the pipeline."""
    asked = options.microbatches
    count = min(splits.counts - {1}, default=1) if asked == "auto" else asked
    if count == 1:
        return None
    alone = splits.whole(1)
    with alone.context:
        if isinstance(layer_positions(alone.operation, exactly=most + 1), StageRefusal):
            return None
    why = get_str(splits.whole(count).operation, SWEEPS)
    return MicrobatchRefusal(
        RefusalReason.WHOLE_BATCH,
        f"with {count} the forward pass has too few layers for {options.stages} stages:"
        f" {why or 'most of it depends on sums over the whole batch'}",
    )


def state_bytes(split_module: Module) -> int:
    """Bytes of the arguments, which are held with any number of microbatches."""
    arguments = body(main_function(split_module.operation)).arguments
    return sum(num_bytes(argument) for argument in arguments)


def ways_out(module: Module, error: LimitError, limit_bytes: int, num_devices: int) -> str:
    """Advice if no plan of a program fits, by what fills the devices; the cheapest first.

    Args:
        module: prepared; its state is the part that no split over the devices reduces further.
        error: of the shape that misses the limit by least.
    """
    with module.context:
        main = main_function(module.operation)
        arguments = body(main).arguments
        state_bytes = sum(num_bytes(arguments[a]) for a in state_arguments(main))
    least = -(-state_bytes // limit_bytes)
    if least > num_devices:
        return (
            f"the state alone is {state_bytes:,} bytes: use at least {least} devices of"
            f" {limit_bytes:,} bytes, or keep it in fewer bits"
        )
    return (
        f"the state is {state_bytes // num_devices:,} of these bytes if it is split over all"
        " devices, activations and temporaries are the rest: wrap layers in jax.checkpoint, use"
        " more microbatches, a smaller batch or more devices, or raise the limit (this shape misses"
        f" it by {error.missing_bytes:,} bytes; another may need less)"
    )
