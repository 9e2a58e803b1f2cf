"""Where to cut the forward pass: contiguous layers of balanced work with few crossing bytes."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.loops.whole_loops import whole_loops
from shardc.analysis.program.def_use import Dataflow
from shardc.analysis.program.flops import is_heavy, op_cost
from shardc.analysis.stages.stage_refusal import StageRefusal, too_few_layers
from shardc.ir.attributes import ORIGIN, phase_of
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import ops
from shardc.plan.function_kind import Phase
from shardc.solver.pipeline.cluster_layers import Value, cluster_layers

STAGE_DELTA = 0.2  # a stage may exceed the mean work by this share to reduce the crossing bytes
LAYER_DELTA = 0.5  # the same for a layer; the stage planner merges layers


def layer_starts(
    flow: Dataflow,
    order: Sequence[int],
    most_layers: int,
    *,
    delta: float = LAYER_DELTA,
    work: Sequence[float] = (),
) -> list[int]:
    """Clusters the forward ops into up to `most_layers` contiguous layers.

    Each layer has a matrix product or convolution, so there are never more layers than such ops.

    Args:
        order: positions of the forward ops that are not cloned, ascending.
        delta: no layer has more than (1 + delta) times the mean FLOPs, if possible.
        work: FLOPs attributed to each op of `order`; empty: its own.
    Returns:
        For each layer the position in @main of its first op; [] without forward ops.
    """
    if not order:
        return []
    flops = list(work) or [op_cost(flow.ops[i]).flops for i in order]
    num_layers = max(1, min(most_layers, count_heavy_ops(flow, order)))
    values, is_layer = crossing_values(flow, order), [is_heavy(flow.ops[i]) for i in order]
    layers = cluster_layers(flops, values, num_layers, heavy=is_layer, delta=delta)
    return [order[first] for first, _ in layers]


def balanced_cuts(
    flow: Dataflow, order: Sequence[int], stages: int, work: Sequence[float] = ()
) -> list[int] | StageRefusal:
    """For each stage but the first, the position in @main of its first forward op; arguments as for
    `layer_starts`."""
    heavy = count_heavy_ops(flow, order)
    if stages > max(heavy, 1):
        return too_few_layers(stages, heavy, whole_loops(flow.ops, order))
    return layer_starts(flow, order, stages, delta=STAGE_DELTA, work=work)[1:]


def count_heavy_ops(flow: Dataflow, order: Sequence[int]) -> int:
    """Maximum number of layers: that of products and convolutions; a loop with some counts once."""
    return sum(is_heavy(flow.ops[i]) for i in order)


def crossing_values(flow: Dataflow, order: Sequence[int]) -> list[Value]:
    """The def-use edges between the ops of `order`, which are numbered from 0."""
    place = {op: index for index, op in enumerate(order)}
    found = []
    for op in order:
        consumers = tuple(place[user] for user in flow.users[op] if user in place)
        if consumers:
            size = sum(num_bytes(result) for result in flow.ops[op].results)
            found.append(Value(place[op], consumers, size))
    return found


Origin = tuple[int, int]  # position of an op before loops were cut, and its first iteration


def origins_at(main: ir.Operation, cuts: Sequence[int]) -> list[Origin | None]:
    """The origins of these positions of a split @main, independent of how its loops are cut; None
    if no op of the body follows."""
    origins = [_origin(op) if phase_of(op) is Phase.BODY else None for op in ops(main)]
    return [next((origin for origin in origins[cut:] if origin is not None), None) for cut in cuts]


def positions_of(main: ir.Operation, origins: Sequence[Origin]) -> tuple[int, ...] | None:
    """The positions of these origins in a @main whose loops may be cut elsewhere; None if one is
    not in its body, or they are in another order."""
    found: dict[Origin, int] = {}
    for i, op in enumerate(ops(main)):
        origin = _origin(op)
        if origin is not None and phase_of(op) is Phase.BODY:
            found.setdefault(origin, i)
    positions = tuple(found.get(origin, -1) for origin in origins)
    rising = list(positions) == sorted(set(positions)) and -1 not in positions
    return positions if rising else None


def _origin(op: ir.Operation) -> Origin | None:
    if ORIGIN not in op.attributes:
        return None
    position, first = ir.DenseI64ArrayAttr(op.attributes[ORIGIN])
    return position, first
