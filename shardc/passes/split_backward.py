"""Split the backward of each stage: results that other stages wait for, and the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardc.analysis.program.flops import heavy_flops
from shardc.analysis.program.stage_table import free_number
from shardc.analysis.stages.backward_split import (
    BackwardSplit,
    backward_splits,
    has_weight_products,
)
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.errors import StageError
from shardc.ir.attributes import (
    KIND,
    PER_MICROBATCH,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.clone import clone_op, inputs
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.walk import body, functions, terminator, where
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import computed_id


@dataclass(frozen=True)
class SplitBackward(Pass):
    """Makes `@stage{s}_backward` and `@stage{s}_weight` of the backward of each stage.

    Reads the stage functions that shardc-outline-stages wrote. Afterwards `backward` computes what
    functions of other stages read for the same microbatch (the gradient of the stage's input), and
    `weight` all the rest, which can run later: the gradients of the weights. Values that both need
    go from one to the other under ids of their own, or are computed twice, whichever takes less
    time. A stage that sends nothing back, the first one, has a `weight` alone; one without weights
    a `backward` alone. A second run changes nothing.

    Options:
        cluster: its device prices the choice; in text a built-in name, the path of a cluster
            file, or its JSON.
    """

    name = "shardc-split-backward"

    cluster: Cluster = field(default=Cluster.parse("cpu8"), metadata=in_text(Cluster.parse))

    def apply(self, module: ir.Operation) -> None:
        found = list(functions(module))
        if any(function_kind(f) is FunctionKind.WEIGHT for f in found):
            return
        parts = backward_splits(found, found, CostModel(self.cluster))
        _check_gains(parts)
        number = free_number(found)
        for function, split in parts.items():
            ids = {value: computed_id(number + i) for i, value in enumerate(split.kept)}
            number += len(ids)
            _write_parts(function, split, ids)


def _check_gains(parts: dict[ir.Operation, BackwardSplit]) -> None:
    """Refuses a program whose weight gradients all stand in front of what stages send back."""
    if has_weight_products(parts.values()):
        return
    split = next(split for split in parts.values() if split.tied)
    last = max(split.urgent, key=heavy_flops)
    raise StageError(
        f"no weight gradient can be computed apart from the gradient that a stage sends back:"
        f" '{last.name}' is in front of both",
        where=where(last),
        help="take a schedule that does not split the backward, such as 1f1b, or write the layers"
        " of a loop one after the other",
        code="SHARDC-163",
    )


def _write_parts(function: ir.Operation, split: BackwardSplit, ids: dict[ir.Value, str]) -> None:
    """Replaces a backward function by its two parts."""
    own = {
        value: {VALUE: str_attr(id_), PER_MICROBATCH: ir.UnitAttr.get()}
        for value, id_ in ids.items()
    }
    returned, attrs = list(terminator(function).operands), result_attrs(function)
    urgent = [(returned[r], attrs[r]) for r in split.urgent_results] + list(own.items())
    rest = [(returned[r], attrs[r]) for r in split.rest_results]
    with ir.InsertionPoint(function), function.location:
        if split.urgent:
            _write(function, FunctionKind.BACKWARD, split.urgent, urgent, {})
        if split.rest or split.rest_results:
            _write(function, FunctionKind.WEIGHT, split.rest, rest, own)
    function.erase()


def _write(
    function: ir.Operation,
    kind: FunctionKind,
    own: Sequence[ir.Operation],
    results: Sequence[tuple[ir.Value, dict[str, ir.Attribute]]],
    given: dict[ir.Value, dict[str, ir.Attribute]],
) -> None:
    """Writes one part: `own` ops with what they use: arguments of the whole, and `given` values."""
    used = _used(own, [value for value, _ in results])
    known = dict(zip(body(function).arguments, arg_attrs(function), strict=True)) | given
    arguments = {value: attrs for value, attrs in known.items() if value in used}
    types = [value.type for value in arguments]
    signature = ir.FunctionType.get(types, [value.type for value, _ in results])
    written = func.FuncOp(f"stage{get_int(function, STAGE)}_{kind}", signature).operation
    written.attributes[STAGE] = function.attributes[STAGE]
    written.attributes[KIND] = str_attr(kind)
    written.attributes[ROUND] = function.attributes[ROUND]
    entry = written.regions[0].blocks.append(*types, arg_locs=[written.location] * len(types))
    mapping = dict(zip(arguments, entry.arguments, strict=True))
    with ir.InsertionPoint(entry):
        for op in own:
            with op.location:
                mapping.update(zip(op.results, clone_op(op, mapping).results, strict=True))
        func.ReturnOp([mapping[value] for value, _ in results])
    set_arg_attrs(written, list(arguments.values()))
    set_result_attrs(written, [attrs for _, attrs in results])


def _used(own: Iterable[ir.Operation], results: Iterable[ir.Value]) -> set[ir.Value]:
    return {value for op in own for value in inputs(op)} | set(results)
