"""MLIR contexts with every dialect and pass that shardc uses."""

import functools

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir as jax_mlir

Module = ir.Module


@functools.cache
def _register_passes() -> None:
    stablehlo.register_stablehlo_passes()


def make_context() -> ir.Context:
    """A fresh context with the func, stablehlo, chlo and sdy dialects loaded."""
    _register_passes()
    return jax_mlir.make_ir_context()


def parse(text: str | bytes, context: ir.Context | None = None) -> ir.Module:
    """Parses trusted MLIR text or bytecode; untrusted files go through `shardc.importer`."""
    with context or make_context():
        return ir.Module.parse(text)
