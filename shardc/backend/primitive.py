"""`shardc_program`: a JAX primitive whose lowering is a module that shardc wrote."""

import hashlib
from collections.abc import Callable
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.interpreters import mlir


class ProgramText:
    """MLIR text that compares by digest and prints short, so that a jaxpr stays readable."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramText) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{len(self.text)} characters of MLIR, {self.digest[:8]}>"


shardc_program = Primitive("shardc_program")
shardc_program.multiple_results = True


@shardc_program.def_abstract_eval  # type: ignore[untyped-decorator]  # JAX leaves it untyped
def _abstract_eval(
    *args: Any, text: ProgramText, results: tuple[ShapedArray, ...]
) -> list[ShapedArray]:
    return list(results)


def _lower(
    ctx: mlir.LoweringRuleContext,
    *args: ir.Value,
    text: ProgramText,
    results: tuple[ShapedArray, ...],
) -> list[ir.Value]:
    """Calls @main of the program, merged into the module that JAX is building."""
    context = ctx.module_context
    with context.context:
        program = ir.Module.parse(text.text)
        main = ir.SymbolTable(program.operation)["main"]
        function_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    name = mlir.merge_mlir_modules(
        context.module, "shardc_program", program, dst_symtab=context.symbol_table
    )
    call = func.CallOp(function_type.results, ir.FlatSymbolRefAttr.get(name), args)
    return list(call.results)


mlir.register_lowering(shardc_program, _lower)


def run_program(
    args: tuple[jax.Array, ...], text: ProgramText, results: tuple[ShapedArray, ...]
) -> list[jax.Array]:
    """Stages the call of `text` into the function that is being traced."""
    bind: Callable[..., list[jax.Array]] = shardc_program.bind
    return bind(*args, text=text, results=results)
