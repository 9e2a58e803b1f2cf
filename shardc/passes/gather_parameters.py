"""Gather the parameters of a stage, and reduce its gradients, in functions of their own."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.program.stage_table import argument_rows, free_number
from shardc.analysis.shardings.sharding_problem import function_args, function_results
from shardc.ir.attributes import (
    GATHERED,
    KIND,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    int_attr,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, functions, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import (
    accumulator_id,
    computed_id,
    is_accumulator,
    is_argument,
    value_id,
)

Types = dict[str, ir.Type]  # by value id


@dataclass(frozen=True)
class GatherParameters(Pass):
    """Lets the functions of a microbatch read gathered parameters and add to whole gradients.

    `gather` hands on the parameters that the functions of a microbatch read, under ids of their
    own; `reduce` adds the sums over microbatches to second ones, which the update reads instead.
    The parameters and the second sums lie sharded over the axis, what the functions of a microbatch
    see does not: shardc-plan-shardings makes it so where `shardc.gathered` stands. How often the
    two run is up to the schedule: sums start from zero behind each `reduce`. Values without a dim
    that the axis divides stay as they are, as do the batch and concatenated results. A second run
    changes nothing.

        stage0_backward(arg0, acc1) -> acc1      stage0_update_0(arg0, acc1)
    becomes
        stage0_gather(arg0) -> v2
        stage0_backward(v2, acc1) -> acc1        stage0_update_0(arg0, acc3)
        stage0_reduce(acc1, acc3) -> acc3

    Options:
        axis: of the mesh, over which parameters lie sharded.
        parts: for each stage, its devices along the axis; 1: nothing is gathered there.
    """

    name = "shardc-gather-parameters"
    never_refuses = "a stage without parameters that the axis divides is left alone"

    axis: str = "x"
    parts: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        own = list(functions(module))
        if any(function_kind(f) is FunctionKind.GATHER for f in own):
            return
        batch = {n for n, row in enumerate(argument_rows(module)) if row.batch_dim is not None}
        free = itertools.count(free_number(own))
        for stage, parts in enumerate(self.parts):
            of_stage = [f for f in own if get_int(f, STAGE) == stage]
            passes = [f for f in of_stage if _is_of_microbatch(f)]
            if parts == 1 or not passes:
                continue
            parameters = _parameters(passes, batch, parts)
            gathered = {name: computed_id(next(free)) for name in parameters}
            for function in passes:
                _rename_arguments(function, gathered)
            sums = _sums(passes, parts)
            reduced = {name: accumulator_id(next(free)) for name in sums}
            for function in of_stage:
                if not _is_of_microbatch(function):
                    _rename_arguments(function, reduced)
            if gathered:
                with ir.InsertionPoint(passes[0]):
                    self._write_gather(module, stage, parameters, gathered)
            if reduced:
                with ir.InsertionPoint.after(passes[-1]):
                    self._write_reduce(module, stage, sums, reduced)

    def _write_gather(
        self, module: ir.Operation, stage: int, types: Types, gathered: Mapping[str, str]
    ) -> None:
        own = list(types.values())
        made = self._function(module, FunctionKind.GATHER, stage, own, own)
        with ir.InsertionPoint(body(made)), made.location:
            func.ReturnOp(list(body(made).arguments))
        set_arg_attrs(made, _named(types))
        set_result_attrs(made, _named(gathered.values()))

    def _write_reduce(
        self, module: ir.Operation, stage: int, types: Types, reduced: Mapping[str, str]
    ) -> None:
        own = list(types.values())
        made = self._function(module, FunctionKind.REDUCE, stage, [*own, *own], own)
        arguments = list(body(made).arguments)
        pairs = zip(arguments[len(own) :], arguments[: len(own)], strict=True)
        with ir.InsertionPoint(body(made)), made.location:
            func.ReturnOp([stablehlo.AddOp(total, added).result for total, added in pairs])
        set_arg_attrs(made, _named([*types, *reduced.values()]))
        set_result_attrs(made, _named(reduced.values()))

    def _function(
        self,
        module: ir.Operation,
        kind: FunctionKind,
        stage: int,
        takes: Sequence[ir.Type],
        gives: Sequence[ir.Type],
    ) -> ir.Operation:
        """An empty function at the current insertion point."""
        unknown = ir.Location.unknown(module.context)
        signature = ir.FunctionType.get(list(takes), list(gives))
        with unknown:
            written = func.FuncOp(f"stage{stage}_{kind}", signature).operation
        written.attributes[STAGE] = int_attr(stage)
        written.attributes[KIND] = str_attr(kind)
        written.attributes[ROUND] = int_attr(0)
        written.attributes[GATHERED] = str_attr(self.axis)
        written.regions[0].blocks.append(*takes, arg_locs=[unknown] * len(takes))
        return written


def _is_of_microbatch(function: ir.Operation) -> bool:
    kind = function_kind(function)
    return kind is not None and kind.per_microbatch


def _named(ids: Iterable[str]) -> list[dict[str, ir.Attribute]]:
    return [{VALUE: str_attr(each)} for each in ids]


def _divides(value: ir.Value, parts: int) -> bool:
    return any(size and size % parts == 0 for size in shape_of(value))


def _parameters(passes: Sequence[ir.Operation], batch: set[int], parts: int) -> Types:
    """The arguments of the step that functions of a microbatch read, without its batch."""
    found: Types = {}
    for function in passes:
        values = body(function).arguments
        for name, value in zip(function_args(function), values, strict=True):
            if is_argument(name) and value_id(name).number not in batch and _divides(value, parts):
                found[name] = value.type
    return found


def _sums(passes: Sequence[ir.Operation], parts: int) -> Types:
    """The accumulators to which functions of a microbatch add, and nothing else; others collect
    rows."""
    found: Types = {}
    others: set[str] = set()
    for function in passes:
        values = zip(function_results(function), terminator(function).operands, strict=True)
        given = dict(values)
        for name, value in zip(function_args(function), body(function).arguments, strict=True):
            if not is_accumulator(name):
                continue
            if _adds(given.get(name), value) and _divides(value, parts):
                found[name] = value.type
            else:
                others.add(name)
    return {name: type for name, type in found.items() if name not in others}


def _adds(total: ir.Value | None, accumulator: ir.Value) -> bool:
    """Whether `total` is the accumulator and a summand that does not depend on it."""
    op = None if total is None else defining_op(total)
    uses = list(accumulator.uses)
    return op is not None and op.name == "stablehlo.add" and [u.owner for u in uses] == [op]


def _rename_arguments(function: ir.Operation, names: Mapping[str, str]) -> None:
    attrs = arg_attrs(function)
    set_arg_attrs(
        function,
        [
            each | {VALUE: str_attr(names.get(name, name))}
            for each, name in zip(attrs, function_args(function), strict=True)
        ],
    )
