"""Where the stages of a hand-written plan begin in the program."""

from collections.abc import Sequence

from shardc.analysis.stages.layer_positions import layer_positions
from shardc.analysis.stages.stage_cuts import Origin
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cutting import origins
from shardc.errors import InputError
from shardc.ir.context import Module
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import StagesSpec, first_layers
from shardc.planner.layer_samples import find_layers, layer_loops
from shardc.planner.promising import LEAST_SHARE
from shardc.planner.split_cache import Splits

Begins = list[Origin]
Layers = tuple[tuple[int, ...], ...]


def stages_of(module: Module, splits: Splits, spec: StagesSpec) -> tuple[Begins, Layers]:
    """The first op of each stage but the first, and the layers of each stage."""
    counted = first_layers(spec)
    count, stages = spec.microbatches, len(spec.stages)
    if stages == 1 and counted is None:
        return [], ((),)
    total, firsts = (stages, tuple(range(stages))) if counted is None else counted
    loops = layer_loops(splits.module, LEAST_SHARE)
    if counted is not None and loops:
        loop_cuts = tuple(cut for first, _ in loops for cut in (first + 1, first + 2))
        found = find_layers(splits.cut_at(count, loop_cuts), loops)
        if isinstance(found, StageRefusal):
            raise found.error()
        known = list(found[0].origins)
        iterations = _iterations(known, loops)
        if total == len(iterations) != len(known):
            firsts = (0, *(iterations[first] for first in firsts[1:]))
        elif total != len(known):
            raise _other_layers(total, len(known), len(iterations))
        total = len(known)
    else:
        if counted is None:
            split_module, _ = splits.in_even_parts(count, stages)
        else:
            split_module = splits.whole(count)
        with split_module.context:
            positions = layer_positions(split_module.operation, exactly=total)
        if isinstance(positions, StageRefusal):
            if counted is None:
                raise positions.error()
            raise _other_layers(total, positions.most, None)
        begin = origins(split_module, positions)
        if None in begin:
            raise _not_there(firsts)
        known = [each for each in begin if each is not None]
    ends = (*firsts[1:], total)
    layers = tuple(tuple(range(a, b)) for a, b in zip(firsts, ends, strict=True))
    return [known[first] for first in firsts[1:]], layers


def _iterations(known: Begins, loops: Sequence[tuple[int, int]]) -> list[int]:
    """For each iteration of the loops over layers, the number of its layer."""
    number = {origin: layer for layer, origin in enumerate(known)}
    found: list[int] = []
    for first, trips in loops:
        second = next((n for (_, row), n in number.items() if row == first + 1), None)
        if second is not None:
            found += range(second - 1, second - 1 + trips)
    return found


def cut_shape(splits: Splits, shape: PipelineShape, begins: Begins) -> PipelineShape:
    """The shape whose stages begin at `begins`; InputError (SHARDC-208) if they cannot."""
    if not begins:
        return shape
    found = splits.shape_at(shape, begins)
    if found is None:
        raise _not_there(range(len(begins) + 1))
    return found


def _other_layers(asked: int, layers: int, iterations: int | None) -> InputError:
    other = "" if iterations is None else f", or {iterations} iterations of its loop over layers"
    return InputError(
        f"the hand-written plan counts {asked} layers, and the program has {layers}{other}",
        help="make the layers of all stages add up to that",
        code="SHARDC-208",
    )


def _not_there(firsts: Sequence[int]) -> InputError:
    return InputError(
        f"not every one of the {len(firsts)} stages of the hand-written plan begins at a layer of a"
        " microbatch",
        help="begin stages at other layers, or use fewer microbatches",
        code="SHARDC-208",
    )
