"""Rules of ops that concatenate blocks of equal size in a dim, or slice some out of it.

Shardy's rules want such a dim whole. Microbatches need only their part of each block, because they
may cut a dim behind an outer one (`batch_state.Cut`): of a batch that is concatenated to another
(chosen and rejected answers, conditional and unconditional inputs, two views of an image).
"""

from math import gcd, prod

from jax.extend.mlir import ir

from shardc.ir.tensor_types import shape_of
from shardc.rules.op_rule import FactorKind, OpRule

# Ops that map each operand dim to the same dim of the result.
BLOCKWISE = ("stablehlo.concatenate", "stablehlo.slice", "stablehlo.pad")


def with_blocks(op: ir.Operation, rule: OpRule) -> OpRule:
    """The rule of an op extended by blocks: a dim of n blocks has the factors [n, block].

    A dim whose size differs between operand and result gets these factors if it has blocks of more
    than one element; the block factor may be cut, the number of blocks may not.
    """
    if op.name not in BLOCKWISE:
        return rule
    operands = [list(mapping) for mapping in rule.operands]
    result = list(rule.results[0])
    sizes, kinds = list(rule.sizes), list(rule.kinds)

    def add(size: int, kind: FactorKind) -> tuple[int, ...]:
        if size == 1:
            return ()
        sizes.append(size)
        kinds.append(kind)
        return (len(sizes) - 1,)

    for dim, size in _blocks(op).items():
        block = add(size, FactorKind.PASS_THROUGH)
        dims = [(mapping, shape_of(v)) for mapping, v in zip(operands, op.operands, strict=True)]
        for mapping, shape in [*dims, (result, shape_of(op.results[0]))]:
            if shape:  # not the padding value
                count = shape[dim] // size
                mapping[dim] = (*add(count, FactorKind.NEED_REPLICATION), *block)
    return OpRule(tuple(map(tuple, operands)), (tuple(result),), tuple(sizes), tuple(kinds))


def cuts_blocks(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Whether a factor is the block factor of an op with blocks."""
    if op.name not in BLOCKWISE:
        return False
    blocks = _blocks(op)
    found = [
        (dim, prod(rule.sizes[f] for f in factors) == size)
        for dim, (factors, size) in enumerate(
            zip(rule.results[0], shape_of(op.results[0]), strict=True)
        )
        if factors[-1:] == (factor,)
    ]
    return any(whole and blocks.get(dim) == rule.sizes[factor] for dim, whole in found)


def _blocks(op: ir.Operation) -> dict[int, int]:
    """Dim -> the largest block that all its pieces are multiples of, if above one element."""
    shape = shape_of(op.results[0])
    if op.name == "stablehlo.concatenate":
        dim = int(ir.IntegerAttr(op.attributes["dimension"]).value)
        edges = {dim: [shape_of(operand)[dim] for operand in op.operands]}
    else:
        edges = dict(enumerate(_edges(op)))
    before = shape_of(op.operands[0])
    blocks = {
        d: gcd(*sizes)
        for d, sizes in edges.items()
        if before[d] != shape[d] and min(sizes, default=0) >= 0
    }
    return {d: size for d, size in blocks.items() if size > 1}


def _edges(op: ir.Operation) -> list[list[int]]:
    """For each dim the bounds of a slice, or the edges of a pad, and its size; [] for strided
    slices and interior padding."""
    first, last, between, none = (
        ("start_indices", "limit_indices", "strides", 1)
        if op.name == "stablehlo.slice"
        else ("edge_padding_low", "edge_padding_high", "interior_padding", 0)
    )
    numbers = [list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in (first, last, between)]
    sizes = shape_of(op.operands[0])
    return [
        [low, high, size] if step == none else []
        for low, high, step, size in zip(*numbers, sizes, strict=True)
    ]
