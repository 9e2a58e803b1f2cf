"""Runs a module that was split into microbatches, phase by phase, as the definition says.

Shares no code with the stage outliner or the runtime: each phase becomes a function of the values
that it takes from arguments and other phases, and `shardc.accumulate` is done here, by NumPy.
"""

import warnings
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.interpreters import mlir as jax_mlir

from shardc.analysis.program.flops import heavy_flops
from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    PHASE,
    arg_attrs,
    call_target,
    get_int,
    get_str,
)
from shardc.ir.clone import clone_op, inputs
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import body, main_function, ops, terminator
from shardc.passes.canonicalize import Canonicalize
from shardc.passes.cse import Cse
from shardc.passes.inline_calls import InlineCalls
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.strip_shardings import StripShardings
from shardc.rules.libraries import called_computations
from tests.py.programs import Program

Arrays = list[np.ndarray]

_primitive = Primitive("split_evaluator")
_primitive.multiple_results = True


@_primitive.def_abstract_eval
def _types(*args: Any, text: str, results: Any) -> Any:
    return list(results)


def _lower(ctx: Any, *args: Any, text: str, results: Any) -> Any:
    with ctx.module_context.context:
        module = ir.Module.parse(text)
        function_type = ir.FunctionType(
            ir.TypeAttr(main_function(module.operation).attributes["function_type"]).value
        )
    name = jax_mlir.merge_mlir_modules(
        ctx.module_context.module, "part", module, dst_symtab=ctx.module_context.symbol_table
    )
    return func.CallOp(function_type.results, ir.FlatSymbolRefAttr.get(name), args).results


jax_mlir.register_lowering(_primitive, _lower)


def run_module(module: ir.Module, args: Arrays) -> Arrays:
    """Runs the main function of a module on one device."""
    results = [_aval(v.type) for v in terminator(main_function(module.operation)).operands]
    call = jax.jit(lambda *a: _primitive.bind(*a, text=str(module), results=tuple(results)))
    # Compiling takes longer than running: without LLVM's optimisations it takes a fraction.
    fast = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return [np.asarray(r) for r in call.lower(*args).compile(fast)(*args)]


def _aval(type_: ir.Type) -> jax.core.ShapedArray:
    from shardc.ir.tensor_types import dtype_name

    dtype = jax.numpy.dtype(dtype_name(ir.ShapedType(type_).element_type))
    return jax.core.ShapedArray(tuple(ir.ShapedType(type_).shape), dtype)


def normalized(program: Program) -> tuple[ir.Module, Arrays]:
    """A program as the split gets it, with its flat arguments (keys as their bits)."""
    jitted = jax.jit(program.step, donate_argnums=program.donate_argnums, keep_unused=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        module = parse(jitted.lower(*program.args).as_text(debug_info=True))
    run_passes(module, [InlineCalls(), StripShardings(), LegalizeChlo(), Canonicalize(), Cse()])
    flat = [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(program.args)
    ]
    return module, [np.asarray(x) for x in flat]


class _Phase:
    """One phase as a function: `takes` and `gives` are values of the split module."""

    def __init__(self, module: ir.Module, phase: str) -> None:
        main = main_function(module.operation)
        mine = [op for op in ops(main) if get_str(op, PHASE) == phase]
        special = [op for op in mine if call_target(op) in (ACCUMULATE, MICROBATCH_INDEX)]
        self.accumulates = [op for op in special if call_target(op) == ACCUMULATE]
        plain = [op for op in mine if op not in special]
        made = {r for op in plain for r in op.results}
        self.takes = list(dict.fromkeys(v for op in plain for v in inputs(op) if v not in made))
        used = {v for op in ops(main) if op not in plain for v in inputs(op)}
        used.update(terminator(main).operands)
        self.gives = [v for v in made if v in used]
        self.module = self._outline(module, plain)

    def _outline(self, module: ir.Module, plain: list[ir.Operation]) -> ir.Module:
        with module.context, ir.Location.unknown():
            outlined = ir.Module.create()
            with ir.InsertionPoint(outlined.body):
                types = [v.type for v in self.takes], [v.type for v in self.gives]
                function = func.FuncOp("main", ir.FunctionType.get(*types))
            block = function.add_entry_block()
            mapping = dict(zip(self.takes, block.arguments, strict=True))
            with ir.InsertionPoint(block):
                for op in plain:
                    copy = clone_op(op, mapping)
                    del copy.attributes[PHASE]
                    mapping.update(zip(op.results, copy.results, strict=True))
                func.ReturnOp([mapping[v] for v in self.gives])
            with ir.InsertionPoint(outlined.body):
                for named in called_computations(module.operation, outlined.operation):
                    named.clone()
            outlined.operation.verify()
        return outlined

    def run(self, values: dict[ir.Value, np.ndarray]) -> dict[ir.Value, np.ndarray]:
        results = run_module(self.module, [values[v] for v in self.takes]) if self.gives else []
        return dict(zip(self.gives, results, strict=True))


def run_split(module: ir.Module, args: Arrays) -> Arrays:
    """Runs a split module: before, every microbatch, accumulate, after."""
    main = main_function(module.operation)
    count = get_int(module.operation, NUM_MICROBATCHES)
    assert count is not None
    values: dict[ir.Value, np.ndarray] = {}
    for arg, attrs, value in zip(body(main).arguments, arg_attrs(main), args, strict=True):
        values[arg] = np.reshape(value, ir.ShapedType(arg.type).shape)
        assert (np.shape(value) != values[arg].shape) == (BATCH_DIM in attrs)
    phases = {name: _Phase(module, name) for name in ("before", "body", "after")}
    values.update(phases["before"].run(values))
    indices = [op.results[0] for op in ops(main) if call_target(op) == MICROBATCH_INDEX]
    parts: list[dict[ir.Value, np.ndarray]] = []
    for i in range(count):
        microbatch = values | {index: np.int32(i) for index in indices}
        parts.append(microbatch | phases["body"].run(microbatch))
    for op in phases["body"].accumulates:
        each = [part[op.operands[0]] for part in parts]
        if get_str(op, KIND) == "concat":
            values[op.results[0]] = np.stack(each, axis=get_int(op, BATCH_DIM))
        elif count == 1:
            values[op.results[0]] = each[0]
        else:
            values[op.results[0]] = sum(each[1:], each[0])
    values.update(phases["after"].run(values))
    return [values[v] for v in terminator(main).operands]


def flops_of(module: ir.Module, phase: str | None = None) -> int:
    """FLOPs of matrix products and convolutions, of one phase or of all."""
    return sum(
        heavy_flops(op)
        for op in ops(main_function(module.operation))
        if phase is None or get_str(op, PHASE) == phase
    )


def copy_of(module: ir.Module) -> ir.Module:
    """The same module in a context of its own."""
    return parse(module.operation.get_asm(enable_debug_info=True))
