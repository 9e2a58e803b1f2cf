"""Runs outlined stage functions one after the other, connected by the ids of their values.

Before and gathers; then for every microbatch the forward functions from first to last slice and
stage, and the backward functions in reverse; then one reduction per stage and the rounds of
updates. Accumulators start from zero.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import assumptions, microbatches_of, result_values
from shardc.check.forms.engines import Arrays, Engine
from shardc.check.forms.whole_form import runner
from shardc.ir.attributes import (
    GLOBAL_TYPE,
    NUM_MICROBATCHES,
    PER_MICROBATCH,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    result_attrs,
)
from shardc.ir.tensor_types import dtype_of
from shardc.ir.walk import body, functions
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import INDEX, argument_id, is_accumulator
from shardc.runtime.assumptions import refuse_broken


class _Function(NamedTuple):
    stage: int
    kind: FunctionKind | None
    round: int
    takes: list[tuple[str, bool]]  # value id, one per microbatch?
    gives: list[tuple[str, bool]]
    zeros: dict[str, Any]  # accumulator -> what it starts from
    run: Callable[[Arrays], Arrays]


def run_stages(module: ir.Operation, args: Arrays, engine: Engine) -> Arrays:
    """The flat results of one step.

    Args:
        args: of the types that @main had after the microbatch split, with batch dims split.
    Raises:
        CheckError: SHARDC-271, what the step takes for granted does not hold.
    """
    table = [_function(module, each, engine) for each in functions(module)]
    count = get_int(module, NUM_MICROBATCHES) or 1
    values: dict[Any, Any] = {argument_id(n): value for n, value in enumerate(args)}
    for function in table:
        values |= function.zeros

    def call(function: _Function, microbatch: int) -> None:
        values[INDEX] = np.asarray(microbatch, np.int32)
        inputs = [values[(name, microbatch) if many else name] for name, many in function.takes]
        for (name, many), value in zip(function.gives, function.run(inputs), strict=True):
            values[(name, microbatch) if many else name] = value

    def of(kind: FunctionKind) -> list[_Function]:
        return sorted((f for f in table if f.kind is kind), key=lambda f: (f.round, f.stage))

    for function in (*of(FunctionKind.BEFORE), *of(FunctionKind.GATHER)):
        call(function, 0)
    own = [each for each in FunctionKind if each.per_microbatch]
    table_of = {kind: of(kind) for kind in own}
    for kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT):  # last slice and stage first
        table_of[kind].reverse()
    for microbatch in range(count):
        for function in (function for kind in own for function in table_of[kind]):
            if microbatch in microbatches_of(module, function.stage):
                call(function, microbatch)
    for function in (*of(FunctionKind.REDUCE), *of(FunctionKind.UPDATE)):
        call(function, 0)
    results = [np.asarray(values[name]) for name in result_values(module)]
    assumed = assumptions(module)
    count = len(results) - len(assumed)
    refuse_broken(zip(assumed, results[count:], strict=True))
    return results[:count]


def _function(module: ir.Operation, function: ir.Operation, engine: Engine) -> _Function:
    takes = _values(arg_attrs(function))
    zeros = {}
    for value, (name, _), attrs in zip(
        body(function).arguments, takes, arg_attrs(function), strict=True
    ):
        if is_accumulator(name):
            type_ = ir.TypeAttr(attrs[GLOBAL_TYPE]).value if GLOBAL_TYPE in attrs else value.type
            zeros[name] = np.zeros(ir.RankedTensorType(type_).shape, np.dtype(dtype_of(value)))
    return _Function(
        get_int(function, STAGE) or 0,
        function_kind(function),
        get_int(function, ROUND) or 0,
        takes,
        _values(result_attrs(function)),
        zeros,
        runner(module, function, engine),
    )


def _values(attrs: list[dict[str, ir.Attribute]]) -> list[tuple[str, bool]]:
    return [(str(ir.StringAttr(each[VALUE]).value), PER_MICROBATCH in each) for each in attrs]
