"""The outlined form: one function per stage and kind, connected by value ids."""

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import result_values
from shardc.ir.attributes import (
    ARGUMENTS,
    KIND,
    RESULT_STAGES,
    RESULT_TYPES,
    RESULTS,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    get_int,
    get_str,
    result_attrs,
)
from shardc.ir.walk import body, functions, symbol, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import INDEX, argument_id, is_accumulator
from shardc.specs.form import expect

FORM = "outlined"


def verify(module: ir.Operation) -> None:
    """Checks a module after `shardc-outline-stages`.

    Each function has a stage and a kind; each of its arguments and results has a unique id; every
    argument is a result of another function or an argument of the step; one id has one type. An
    accumulator, which may hold partial sums, stays in its stage.

    Raises:
        FormError: SHARDC-999.
    """
    for table in (ARGUMENTS, RESULTS, RESULT_TYPES, RESULT_STAGES):
        expect(table in module.attributes, FORM, f"{table} is missing")
    known = {argument_id(n) for n in range(len(ir.ArrayAttr(module.attributes[ARGUMENTS])))} | {
        INDEX
    }
    types: dict[str, ir.Type] = {}
    taken: dict[str, ir.Operation] = {}
    homes: dict[str, int] = {}  # of accumulators
    for function in functions(module):
        expect(get_int(function, STAGE) is not None, FORM, "a function has no stage", function)
        expect(get_int(function, ROUND) is not None, FORM, "a function has no round", function)
        kind = get_str(function, KIND)
        expect(kind in list(FunctionKind), FORM, f"a function is for {kind}", function)
        given = _ids(function, result_attrs(function), terminator(function).operands, types)
        wanted = _ids(function, arg_attrs(function), body(function).arguments, types)
        known.update(given)
        taken.update(dict.fromkeys(wanted, function))
        stage = get_int(function, STAGE) or 0
        for value in filter(is_accumulator, (*given, *wanted)):
            stays = homes.setdefault(value, stage) == stage
            expect(stays, FORM, f"{value} belongs to two stages", function)
    for value, function in taken.items():
        is_sum = is_accumulator(value)  # the runtime initializes it to zero
        expect(value in known or is_sum, FORM, f"nobody gives {value}", function)
    leaving = next(filter(is_accumulator, result_values(module)), None)
    expect(leaving is None, FORM, f"{leaving} is a result of the step")


def _ids(
    function: ir.Operation,
    attrs: list[dict[str, ir.Attribute]],
    values: "ir.OpOperandList | ir.BlockArgumentList",
    types: dict[str, ir.Type],
) -> list[str]:
    """The ids of arguments or results; adds the types of new ids to `types`."""
    name = symbol(function)
    found: list[str] = []
    for value, named in zip(values, attrs, strict=True):
        expect(VALUE in named, FORM, f"an argument or result of @{name} has no id", function)
        id_ = str(ir.StringAttr(named[VALUE]).value)
        known = types.setdefault(id_, value.type)
        expect(
            value.type == known, FORM, f"{id_} is {known} and, in @{name}, {value.type}", function
        )
        found.append(id_)
    if len(set(found)) < len(found):
        twice = next(each for each in found if found.count(each) > 1)
        expect(False, FORM, f"@{name} takes or gives {twice} twice", function)
    return found
