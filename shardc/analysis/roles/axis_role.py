"""The role of a mesh axis that splits an op."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.analysis.roles.dims import Dims, batching_dims, contracting_dims
from shardc.analysis.roles.taint import Taint
from shardc.plan.account import Role
from shardc.plan.layout import TensorSharding


def role_of(
    op: ir.Operation,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
    axis: str,
    dims: Dims,
    taint: Taint,
) -> Role:
    """The role of `axis` in an op with these shardings of operands and results.

    A batch dim takes precedence: splitting it is data parallelism in any op. In a product with
    parameters, the parameters' dim decides: a contracting dim is rows, a free dim is columns, a
    batching dim is experts. In a product of two activations, dims that parameters have elsewhere
    are features (heads included); all others are sequence positions.
    """
    split = [
        (value, dim)
        for value, lies in zip((*op.operands, *op.results), (*operands, *results), strict=False)
        for dim, axes in enumerate(lies.dims)
        if axis in axes
    ]
    if not split:
        return Role.WHOLE
    if any(dims.is_batch(value, dim) for value, dim in split):
        return Role.DATA
    if op.name in PRODUCTS and (weight := taint.weight_of(op)) is not None:
        own = [dim for dim, axes in enumerate(operands[weight].dims) if axis in axes]
        if any(dim in batching_dims(op)[weight] for dim in own):
            return Role.EXPERT
        if any(dim in contracting_dims(op)[weight] for dim in own):
            return Role.ROWS
        if own:
            return Role.COLUMNS
    if any(dims.is_expert(value, dim) for value, dim in split):
        return Role.EXPERT
    if any(dims.is_feature(value, dim) for value, dim in split):
        return Role.FEATURES
    return Role.SEQUENCE
