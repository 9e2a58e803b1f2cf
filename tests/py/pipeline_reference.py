"""Runs outlined stage functions as the runtime would, one after the other, on one device.

Shares no code with the runtime: values are looked up by `shardc.value`, so a value that is used
before the function that makes it has run is a KeyError.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import microbatches_of, result_values
from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.primitive import ProgramModule, run_program
from shardc.ir.attributes import (
    KIND,
    PER_MICROBATCH,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    get_int,
    get_str,
    result_attrs,
)
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import body, functions, symbol, terminator


class Function(NamedTuple):
    """A stage function: (value id, one per microbatch?) of what it takes and gives."""

    name: str
    stage: int
    kind: str
    round: int
    takes: list[tuple[str, bool]]
    gives: list[tuple[str, bool]]
    types: list[tuple[tuple[int, ...], str]]
    run: Any


def stage_functions(module: ir.Module) -> list[Function]:
    """Every function of an outlined module, ready to be called with arrays."""
    found = []
    with module.context:
        for function in functions(module.operation):
            found.append(
                Function(
                    symbol(function),
                    get_int(function, STAGE) or 0,
                    get_str(function, KIND) or "",
                    get_int(function, ROUND) or 0,
                    _values(arg_attrs(function)),
                    _values(result_attrs(function)),
                    [(shape_of(v), dtype_of(v)) for v in body(function).arguments],
                    _callable(module, function),
                )
            )
    return found


def run_pipeline(module: ir.Module, args: list[np.ndarray], num_microbatches: int) -> list[Any]:
    """The flat results of one step; accumulators start from zero, microbatches run in order.

    Args:
        args: flat, of @main's types after the microbatch split (batch dims cut in two).
    """
    table = stage_functions(module)
    values: dict[Any, Any] = {f"arg{n}": value for n, value in enumerate(args)}
    for function in table:
        for (name, _), (shape, dtype) in zip(function.takes, function.types, strict=True):
            if name.startswith("acc"):
                values[name] = np.zeros(shape, dtype)

    def call(function: Function, microbatch: int) -> None:
        values["index"] = np.int32(microbatch)
        inputs = [values[(name, microbatch) if many else name] for name, many in function.takes]
        for (name, many), value in zip(function.gives, function.run(*inputs), strict=True):
            values[(name, microbatch) if many else name] = value

    for function in (f for f in table if f.kind == "before"):
        call(function, 0)
    for microbatch in range(num_microbatches):
        with module.context:
            own = [f for f in table if microbatch in microbatches_of(module.operation, f.stage)]
        for function in sorted(
            (f for f in own if f.kind == "forward"), key=lambda f: (f.round, f.stage)
        ):
            call(function, microbatch)
        for function in sorted(
            (f for f in own if f.kind == "backward"), key=lambda f: (-f.round, -f.stage)
        ):
            call(function, microbatch)
        for function in (f for f in own if f.kind == "weight"):
            call(function, microbatch)
    for function in sorted((f for f in table if f.kind == "update"), key=lambda f: f.round):
        call(function, 0)
    with module.context:
        return [np.asarray(values[name]) for name in result_values(module.operation)]


def _values(attrs: list[dict[str, ir.Attribute]]) -> list[tuple[str, bool]]:
    return [(ir.StringAttr(each[VALUE]).value, PER_MICROBATCH in each) for each in attrs]


def _callable(module: ir.Module, function: ir.Operation) -> Any:
    alone = ir.Module.create(ir.Location.unknown())
    with ir.InsertionPoint(alone.body):
        function.clone()
    code = mergeable_module(str(alone).encode(), symbol(function), local=True)
    program = ProgramModule(code)
    results = tuple(
        ShapedArray(shape_of(v), np.dtype(dtype_of(v))) for v in terminator(function).operands
    )
    return jax.jit(lambda *args: run_program(args, program, results))
