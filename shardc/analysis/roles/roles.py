"""What it means that an op is split over an axis of devices."""

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
    """The role of `axis` in an op whose operands and results lie like that.

    Examples come first: a dim that holds the batch is data parallelism wherever it lies. In a
    product with parameters the parameters' dim decides: rows are summed over, columns are made,
    and what is multiplied piece by piece are experts. Where two activations meet, dims that
    parameters have elsewhere are features (heads among them); all others are places in a sequence.
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
