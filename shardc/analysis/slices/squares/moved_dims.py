"""Where the dims of queries and keys are before an op that only moves elements."""

from collections.abc import Callable

from jax.extend.mlir import ir

from shardc.ir.tensor_types import shape_of

Dims = tuple[int | None, int | None]
"""The dims of queries and keys in a value; None where it has none: all its rows are alike."""


def _before_broadcast(op: ir.Operation, dims: Dims) -> Dims | None:
    order = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    sizes = shape_of(op.operands[0])

    def before(dim: int | None) -> int | None:
        if dim is None or dim not in order or sizes[order.index(dim)] == 1:
            return None
        return order.index(dim)

    return before(dims[0]), before(dims[1])


def _before_transpose(op: ir.Operation, dims: Dims) -> Dims | None:
    order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    query, key = dims
    return None if query is None else order[query], None if key is None else order[key]


def _before_reshape(op: ir.Operation, dims: Dims) -> Dims | None:
    """Where only dims of size 1 come and go."""
    old, new = shape_of(op.operands[0]), shape_of(op.results[0])
    kept = [d for d, size in enumerate(old) if size != 1]
    made = [d for d, size in enumerate(new) if size != 1]
    if [old[d] for d in kept] != [new[d] for d in made]:
        return None
    query, key = (None if d is None or d not in made else kept[made.index(d)] for d in dims)
    return query, key


MOVED: dict[str, Callable[[ir.Operation, Dims], Dims | None]] = {
    "broadcast_in_dim": _before_broadcast,
    "transpose": _before_transpose,
    "reshape": _before_reshape,
}
