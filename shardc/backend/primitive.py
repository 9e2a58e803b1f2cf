"""`shardc_program`: a JAX primitive whose lowering is a module compiled by shardc."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.interpreters import mlir

from shardc.ir.effects import callback_number, is_host_call
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import walk

Callback = Callable[..., Any]


class ProgramModule:
    """MLIR bytecode that compares by digest, with a short repr that keeps a jaxpr readable.

    Attributes:
        callbacks: of the host calls in it, by their number.
    """

    def __init__(self, module: bytes, callbacks: Sequence[Callback] = ()) -> None:
        self.module = module
        self.callbacks = tuple(callbacks)
        self.digest = hashlib.sha256(module).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProgramModule):
            return False
        return (self.digest, self.callbacks) == (other.digest, other.callbacks)

    def __hash__(self) -> int:
        return hash((self.digest, self.callbacks))

    def __repr__(self) -> str:
        return f"<{len(self.module)} bytes of MLIR, {self.digest[:8]}>"


shardc_program = Primitive("shardc_program")
shardc_program.multiple_results = True


@shardc_program.def_abstract_eval  # type: ignore[untyped-decorator]  # JAX leaves it untyped
def _abstract_eval(
    *args: Any, module: ProgramModule, results: tuple[ShapedArray, ...]
) -> list[ShapedArray]:
    return list(results)


def _lower(
    ctx: mlir.LoweringRuleContext,
    *args: ir.Value,
    module: ProgramModule,
    results: tuple[ShapedArray, ...],
) -> list[ir.Value]:
    """Calls @main of the program, merged into the module that JAX is building."""
    context = ctx.module_context
    with context.context:
        program = ir.Module.parse(module.module)
        main = ir.SymbolTable(program.operation)["main"]
        function_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    name = mlir.merge_mlir_modules(
        context.module, "shardc_program", program, dst_symtab=context.symbol_table
    )
    if module.callbacks:
        _connect_host_calls(ctx, context.symbol_table[name].operation, module.callbacks)
    call = func.CallOp(function_type.results, ir.FlatSymbolRefAttr.get(name), args)
    return list(call.results)


def _connect_host_calls(
    ctx: mlir.LoweringRuleContext, function: ir.Operation, callbacks: Sequence[Callback]
) -> None:
    """Registers each host call with the program that JAX is building; every device calls."""
    for op in [op for op in walk(function) if is_host_call(op)]:
        avals_in, avals_out = map(_avals, (op.operands, op.results))
        with ir.InsertionPoint(op), op.location:
            results, _, kept = mlir.emit_python_callback(
                ctx.replace(avals_in=avals_in, avals_out=avals_out),
                callbacks[callback_number(op)],
                None,
                list(op.operands),
                avals_in,
                avals_out,
                has_side_effect=False,
                returns_token=False,
            )
        if kept is not None:
            ctx.module_context.add_keepalive(kept)
        for old, new in zip(op.results, results, strict=True):
            assert isinstance(new, ir.Value), "an array is one value"
            old.replace_all_uses_with(new)
        op.erase()


def _avals(values: Iterable[ir.Value]) -> list[ShapedArray]:
    return [ShapedArray(shape_of(value), np.dtype(dtype_of(value))) for value in values]


mlir.register_lowering(shardc_program, _lower)


def run_program(
    args: tuple[jax.Array, ...], module: ProgramModule, results: tuple[ShapedArray, ...]
) -> list[jax.Array]:
    """Stages the call of `module` into the function that is being traced."""
    bind: Callable[..., list[jax.Array]] = shardc_program.bind
    return bind(*args, module=module, results=results)
