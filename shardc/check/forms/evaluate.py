"""Runs a module in whatever form it is in, by the definition of that form.

    functions   each public function alone; a localised one on the devices of its mesh
    split       a @main split into microbatches: before, the body for each microbatch, after
    stages      the functions of outlined stages, one after the other, by the ids of their values

Shares no code with the outliner or the runtime: the values that a phase takes and gives are looked
up by value, so using a value before it is made is an error.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import assumptions
from shardc.check.forms.engines import Arrays, Engine
from shardc.check.forms.split_form import run_split
from shardc.check.forms.stage_form import run_stages
from shardc.check.forms.whole_form import run_function
from shardc.ir.attributes import (
    ARGUMENTS,
    BATCH_DIM,
    GLOBAL_TYPE,
    NUM_MICROBATCHES,
    PHASE,
    PIECE,
    RESULT_PIECES,
    RESULT_TYPES,
    arg_attrs,
    named_attributes,
    result_attrs,
)
from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import body, functions, main_function, ops, symbol, terminator

STEP = "main"


class Slot(NamedTuple):
    """An argument or result in the types of the form.

    Attributes:
        whole: its shape before the batch dim was split.
        piece: (the slot whose rows it continues, the dim), if loops were cut.
    """

    shape: tuple[int, ...]
    whole: tuple[int, ...]
    dtype: str
    piece: tuple[int, int] | None


class Signature(NamedTuple):
    """The arguments and results of a function, or of the step."""

    takes: tuple[Slot, ...]
    gives: tuple[Slot, ...]


def form_of(module: ir.Operation) -> str:
    """The form of the module: "functions", "split" or "stages".

    Stage functions without the tables of their step are functions: texts of tests, for example.
    """
    if {ARGUMENTS, RESULT_TYPES, RESULT_PIECES} <= set(module.attributes):
        return "stages"
    if NUM_MICROBATCHES not in module.attributes or len(list(functions(module))) > 1:
        return "functions"
    phases = any(PHASE in op.attributes for op in ops(main_function(module)))
    return "split" if phases else "functions"


def signatures(module: ir.Operation) -> dict[str, Signature]:
    """The functions that can be run in the module, by name."""
    if form_of(module) == "stages":
        rows = [named_attributes(row) for row in ir.ArrayAttr(module.attributes[ARGUMENTS])]
        takes = [
            _slot(ir.TypeAttr(row["type"]).value, row.get("batch_dim"), row.get("piece"))
            for row in rows
        ]
        types = [ir.TypeAttr(each).value for each in ir.ArrayAttr(module.attributes[RESULT_TYPES])]
        pieces = list(ir.ArrayAttr(module.attributes[RESULT_PIECES]))
        count = len(types) - len(assumptions(module))
        pairs = zip(types[:count], pieces[:count], strict=True)
        gives = [_slot(t, None, piece) for t, piece in pairs]
        return {STEP: Signature(tuple(takes), tuple(gives))}
    found = {}
    for function in functions(module):
        takes = [
            _slot(_type(value, attrs), attrs.get(BATCH_DIM), attrs.get(PIECE))
            for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True)
        ]
        values = terminator(function).operands
        gives = [
            _slot(_type(value, attrs), None, attrs.get(PIECE))
            for value, attrs in zip(values, result_attrs(function), strict=True)
        ]
        found[symbol(function)] = Signature(tuple(takes), tuple(gives))
    return found


def step_types(signature: Signature) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each argument before batches and stacks were split."""
    found = []
    for i, slot in enumerate(signature.takes):
        if slot.piece is None:
            shape = list(slot.whole)
            for other in signature.takes:
                if other.piece is not None and other.piece[0] == i:
                    shape[other.piece[1]] += other.whole[other.piece[1]]
            found.append((tuple(shape), slot.dtype))
    return found


def evaluate(module: ir.Module, inputs: Mapping[str, Arrays], engine: Engine) -> dict[str, Arrays]:
    """The results of each function in `inputs`, by name, with stacks whole.

    Args:
        inputs: by name, of the types in `step_types`.
    """
    with module.context:
        form = form_of(module.operation)
        found = {}
        for name, signature in signatures(module.operation).items():
            if name not in inputs:
                continue
            args = _cut(inputs[name], signature.takes)  # in the types that the form has
            if form == "stages":
                results = run_stages(module.operation, args, engine)
            elif form == "split":
                results = run_split(module.operation, args, engine)
            else:
                results = run_function(module.operation, name, args, engine)
            found[name] = _joined(results, signature.gives)
        return found


def _type(value: ir.Value, attrs: Mapping[str, ir.Attribute]) -> ir.Type:
    return ir.TypeAttr(attrs[GLOBAL_TYPE]).value if GLOBAL_TYPE in attrs else value.type


def _slot(type_: ir.Type, batch_dim: Any, piece: Any) -> Slot:
    tensor = ir.RankedTensorType(type_)
    shape = tuple(tensor.shape)
    whole = list(shape)
    if batch_dim is not None:
        dim = ir.IntegerAttr(batch_dim).value
        whole[dim : dim + 2] = [whole[dim] * whole[dim + 1]]
    numbers = [] if piece is None else list(ir.DenseI64ArrayAttr(piece))
    return Slot(
        shape,
        tuple(whole),
        dtype_name(tensor.element_type),
        (numbers[0], numbers[1]) if numbers else None,
    )


def _cut(args: Arrays, takes: Iterable[Slot]) -> Arrays:
    """Splits whole arguments into the slots of the form."""
    used: dict[int, int] = {}  # rows of an argument taken by earlier slots
    found = []
    for i, slot in enumerate(takes):
        first, dim = slot.piece or (i, 0)
        whole = np.asarray(args[first])
        if whole.shape != slot.whole:
            dim = next(d for d, n in enumerate(slot.whole) if n != whole.shape[d])
            start = used.get(first, 0)
            used[first] = start + slot.whole[dim]
            whole = whole.take(range(start, used[first]), dim)
        found.append(whole.reshape(slot.shape).astype(jnp.dtype(slot.dtype)))
    return found


def _joined(results: Arrays, gives: tuple[Slot, ...]) -> Arrays:
    """Merges results into those of the step: the rows of a stack in one."""
    parts: dict[int, Arrays] = {}
    dims: dict[int, int] = {}
    for i, (value, slot) in enumerate(zip(results, gives, strict=True)):
        first, dim = slot.piece or (i, 0)
        parts.setdefault(first, []).append(np.asarray(value).reshape(slot.whole))
        dims[first] = dim
    return [np.concatenate(p, dims[i]) if len(p) > 1 else p[0] for i, p in sorted(parts.items())]
