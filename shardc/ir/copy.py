"""Copies of whole modules."""

import io

from jax.extend.mlir import ir


def copy_module(module: ir.Module) -> ir.Module:
    """A copy in the same context, locations included."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    with module.context:
        return ir.Module.parse(buffer.getvalue())
