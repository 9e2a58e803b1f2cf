"""The layers that the search distributes over stages, and which of them are alike.

A loop over layers is cut into its first iteration, its second, and the rest; every iteration of the
rest is a layer like the second. So a model of a hundred scanned layers has that many layers, but
only four kinds of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.analysis.loops.stacked_layers import even_cuts, stacked_layers
from shardc.analysis.program.arguments import state_arguments
from shardc.analysis.program.equal_stages import equal_stages
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.analysis.stages.stage_cuts import Origin
from shardc.analysis.stages.stage_refusal import StageRefusal, too_few_layers
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.cutting import find, origins, outline
from shardc.ir.context import Module
from shardc.ir.walk import main_function
from shardc.plan.shape import Residency
from shardc.plan.stages_spec import Recompute
from shardc.plan.value_id import is_argument

MANY = 1 << 20  # microbatches in flight at which a layer keeps only what it receives
NOWHERE: Origin = (-1, 0)  # origin of a first layer without ops of its own


@dataclass(frozen=True)
class Layers:
    """All layers of a program, in order.

    Attributes:
        origins: the first op of each layer (`shardc.cutting.origins`).
        samples: for each layer, the number of its sample.
        behind: for each layer, the sample whose end has the same outgoing values.
        starts: the first op of each sample in the module whose loops are cut into samples.
        kinds: the samples that are unlike all earlier ones.
        arguments: of each sample that is a kind, in the order in which it reads them.
        shared: for each layer, the arguments that an earlier layer reads, too: the last such layer,
            and the argument's place among `arguments`. A stage of both layers holds it once.
    """

    origins: tuple[Origin, ...]
    samples: tuple[int, ...]
    behind: tuple[int, ...]
    starts: tuple[Origin, ...]
    kinds: tuple[int, ...]
    arguments: dict[int, tuple[str, ...]]
    shared: tuple[tuple[tuple[int, int], ...], ...]


def layer_loops(module: Module, least_share: float) -> list[tuple[int, int]]:
    """(first iteration, iterations) of the loops over layers of a prepared module with at least
    three iterations and at least this share of the FLOPs; counted over all such loops."""
    with module.context:
        flow = stacked_layers(module.operation, state_arguments(main_function(module.operation)))
    return [
        (group.first, group.trips)
        for group in flow.groups
        if group.trips > 2
        and not group.independent
        and group.flops >= least_share * max(flow.flops, 1)
    ]


def even_loop_cuts(module: Module, pieces: int) -> tuple[int, ...]:
    """Where to cut the loops over layers of a prepared module into parts of even work."""
    with module.context:
        state = state_arguments(main_function(module.operation))
        return even_cuts(stacked_layers(module.operation, state), pieces)


def find_layers(
    split_module: Module, loops: Sequence[tuple[int, int]], at_least: int = 1
) -> tuple[Layers, Module] | StageRefusal:
    """The layers of a split module and its samples outlined as stages, or why there are too few.

    Args:
        loops: (first iteration, iterations) of the loops over layers to cut after their
            first and second iterations.
        at_least: required number of layers, iterations included.
    """
    more = sum(trips - 3 for _, trips in loops)
    with split_module.context:
        positions = layer_positions(split_module.operation, at_least=max(at_least - more, 1))
    if isinstance(positions, StageRefusal):
        return positions
    first, *rest = zip(positions, origins(split_module, positions), strict=True)
    cuts = {origin: at for at, origin in rest if origin is not None and origin != first[1]}
    starts = (first[1] or NOWHERE, *cuts)
    outlined = outline(split_module, tuple(cuts.values()))
    with outlined.context:
        alike = equal_stages(outlined.operation, len(starts))
    arguments = _arguments(outlined, len(starts))
    begins: list[Origin] = []
    reads: list[Sequence[str | None]] = []
    samples: list[int] = []
    behind: list[int] = []
    ends = {first + 2: first + trips for first, trips in loops}
    for sample, (op, row) in enumerate(starts):
        loop = sample > 0 and row in ends and starts[sample - 1] == (op, row - 1)
        begins.append((op, row))
        samples.append(alike[sample - 1 if loop else sample])
        reads.append(arguments[sample])
        if loop:
            # Iterations read the same arguments, except for rows that belong to one of them.
            theirs = set(arguments[sample])
            reads[-1] = [name if name in theirs else None for name in arguments[sample - 1]]
            for later in range(row + 1, ends[row]):
                begins.append((op, later))
                samples.append(alike[sample - 1])
                behind.append(sample - 1)
                reads.append(reads[-1])
        behind.append(sample)
    if len(begins) < at_least:
        return too_few_layers(at_least, len(begins))
    kinds = tuple(dict.fromkeys(samples))
    layers = Layers(
        tuple(begins),
        tuple(samples),
        tuple(behind),
        starts,
        kinds,
        {kind: arguments[kind] for kind in kinds},
        _shared(reads),
    )
    return layers, outlined


def _arguments(outlined: Module, num_samples: int) -> list[tuple[str, ...]]:
    """The arguments that each sample reads, in the order of its functions."""
    read: list[dict[str, None]] = [{} for _ in range(num_samples)]
    for each in function_values(outlined):
        read[each.stage].update((s.value, None) for s in each.args if is_argument(s.value))
    return [tuple(own) for own in read]


def _shared(reads: Sequence[Sequence[str | None]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """`Layers.shared` of layers that read these arguments; None: one that only this layer reads."""
    last: dict[str | None, int] = {}
    shared = []
    for layer, own in enumerate(reads):
        shared.append(tuple((last[name], at) for at, name in enumerate(own) if name in last))
        last.update((name, layer) for name in own if name is not None)
    return tuple(shared)


def outlined_samples(
    split_module: Module, layers: Layers, recompute: Recompute, cluster: Cluster
) -> Module | None:
    """The samples as stages of a module with other microbatches; None if some do not exist in it.

    Args:
        recompute: what the backward pass of each sample computes again.
        cluster: its device prices that.
    """
    positions = find(split_module, layers.starts[1:])
    if positions is None:
        return None
    residency = Residency(recompute, MANY if recompute == "full" else 0)
    return outline(split_module, positions, (residency,) * len(layers.starts), cluster)
