"""Notes on the values that a plan keeps or computes again."""

from collections.abc import Sequence

from shardc.ir.attributes import CAST_ONCE, KEPT, KEPT_BETWEEN, SWEEPS, data_of, get_str, phase_of
from shardc.ir.context import Module
from shardc.ir.walk import main_function, ops
from shardc.plan.decisions import ValuePlan
from shardc.plan.function_kind import Phase
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.shape import KeptBetween, PipelineShape


def kept_values(module: Module) -> tuple[tuple[ValuePlan, ...], ...]:
    """Per stage, the values that it keeps though the program recomputes them; () if no stage
    does."""
    attributes = module.operation.attributes
    with module.context:
        return (
            data_of(attributes[KEPT], tuple[tuple[ValuePlan, ...], ...])
            if KEPT in attributes
            else ()
        )


def kept_between(split_module: Module) -> KeptBetween | None:
    """The values that sweeps over the microbatches keep for later ones, if there are any."""
    attributes = split_module.operation.attributes
    with split_module.context:
        return (
            data_of(attributes[KEPT_BETWEEN], KeptBetween) if KEPT_BETWEEN in attributes else None
        )


def sweep_notes(module: Module) -> list[Note]:
    """Why there are several sweeps over the microbatches, and what is kept between them."""
    why, kept = get_str(module.operation, SWEEPS), kept_between(module)
    found = [] if why is None else [Note(NoteCode.SEVERAL_RUNS, {"why": why})]
    if kept is not None:
        data: Data = {"count": kept.count, "num_bytes": kept.num_bytes}
        found.append(Note(NoteCode.KEPT_BETWEEN, data))
    return found


def cast_notes(split_module: Module) -> list[Note]:
    """The casts of parameters that are made before the microbatches, if any."""
    with split_module.context:
        marked = [
            op for op in ops(main_function(split_module.operation)) if CAST_ONCE in op.attributes
        ]
        count = sum(phase_of(op) is Phase.BEFORE for op in marked)
    return [Note(NoteCode.CASTS, {"count": count})] if count else []


def residency_notes(shape: PipelineShape) -> list[Note]:
    """The stages that recompute forward values, if any."""
    stages = [str(stage) for stage, each in enumerate(shape.residency) if each.in_flight]
    return [Note(NoteCode.RECOMPUTED, {"stages": ", ".join(stages)})] if stages else []


def kept_notes(kept: Sequence[Sequence[ValuePlan]]) -> list[Note]:
    """The values that stages keep though the program recomputes them, if any."""
    stages = {
        number: own
        for number, own in enumerate(kept)
        if any(each.residency == "keep" for each in own)
    }
    if not stages:
        return []
    values = [each for own in stages.values() for each in own]
    data: Data = {
        "stages": ", ".join(map(str, stages)),
        "kept_bytes": sum(each.num_bytes for each in values if each.residency == "keep"),
        "num_bytes": sum(each.num_bytes for each in values),
    }
    return [Note(NoteCode.KEPT, data)]
