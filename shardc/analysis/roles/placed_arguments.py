"""Shardings of the arguments and gradients of a planned step."""

from collections.abc import Iterator, Mapping

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import argument_rows, next_states
from shardc.ir.attributes import (
    SHARDING,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    result_attrs,
)
from shardc.ir.shardings import from_attr
from shardc.ir.tensor_types import dtype_of, itemsize, shape_of
from shardc.ir.walk import body, functions
from shardc.plan.account import ArgumentKind, PlacedArgument
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_accumulator, is_argument, value_id

_READERS = frozenset(FunctionKind) - {FunctionKind.REDUCE, FunctionKind.UPDATE}


def placed_arguments(
    module: ir.Operation, meshes: Mapping[str, Mesh]
) -> tuple[PlacedArgument, ...]:
    """Each argument with its sharding on its first stage, in the order of the user's arguments."""
    rows = argument_rows(module)
    state = set(next_states(module).values())
    found: dict[str, PlacedArgument] = {}
    read: set[str] = set()
    for function in functions(module):
        stage = get_int(function, STAGE) or 0
        for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True):
            name = str(ir.StringAttr(attrs[VALUE]).value)
            if not is_argument(name):
                continue
            if function_kind(function) in _READERS:
                read.add(name)
            if name in found:
                continue
            lies, shape = from_attr(attrs[SHARDING]), shape_of(value)
            row = rows[value_id(name).number]
            elements = 1
            for size, axes in zip(shape, lies.dims, strict=True):
                elements *= size // meshes[f"stage{stage}"].num_shards(axes)
            num_bytes = elements * itemsize(dtype_of(value))
            if row.batch_dim is not None:
                d = row.batch_dim
                shape = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
                lies = TensorSharding(
                    (*lies.dims[:d], lies.dims[d] + lies.dims[d + 1], *lies.dims[d + 2 :])
                )
            kind = ArgumentKind.OPTIMIZER if name in state else ArgumentKind.INPUTS
            found[name] = PlacedArgument(
                row.name, kind, stage, shape, dtype_of(value), lies, num_bytes
            )
    ordered = sorted(found.items(), key=lambda each: value_id(each[0]).number)
    return tuple(
        _as_parameters(each) if name in read and name in state else each for name, each in ordered
    )


def _as_parameters(each: PlacedArgument) -> PlacedArgument:
    return PlacedArgument(
        each.name,
        ArgumentKind.PARAMETERS,
        each.stage,
        each.shape,
        each.dtype,
        each.lies,
        each.num_bytes,
    )


def gradients(module: ir.Operation, stage: int) -> Iterator[tuple[int, TensorSharding]]:
    """Number of elements and sharding of each gradient of a stage.

    Gradients are the values that the backward pass computes or accumulates and the update reads.
    """
    own = [f for f in functions(module) if (get_int(f, STAGE) or 0) == stage]
    made = {
        str(ir.StringAttr(attrs[VALUE]).value)
        for f in own
        if function_kind(f) in (FunctionKind.BACKWARD, FunctionKind.WEIGHT)
        for attrs in result_attrs(f)
    }
    known: set[str] = set()
    for function in own:
        if function_kind(function) is not FunctionKind.UPDATE:
            continue
        for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True):
            name = str(ir.StringAttr(attrs[VALUE]).value)
            if name in known or not (is_accumulator(name) or name in made):
                continue
            known.add(name)
            shape = shape_of(value)
            size = 1
            for each in shape:
                size *= each
            yield size, from_attr(attrs[SHARDING])
