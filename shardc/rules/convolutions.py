"""Which factors of a convolution may be split, and how many groups a part has."""

from collections.abc import Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.rules.op_rule import OpRule

FEATURE_GROUPS, BATCH_GROUPS = "feature_group_count", "batch_group_count"


def is_divisible(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Batch, features and groups may be split, windows may not.

    The channels (or, with batch groups, the rows) of one group stay together; whole groups may be
    separated. Only without feature groups does the reduction run over all input features.
    """
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    dims = (
        {numbers.input_batch_dimension: "batch", numbers.input_feature_dimension: "in"},
        {
            numbers.kernel_input_feature_dimension: "kernel in",
            numbers.kernel_output_feature_dimension: "kernel out",
        },
        {numbers.output_batch_dimension: "out batch", numbers.output_feature_dimension: "out"},
    )
    mappings = (*rule.operands, *rule.results)
    found = {
        name
        for names, mapping in zip(dims, mappings, strict=True)
        for name in _names(names, mapping, factor)
    }
    of_features, of_batch = group_count(op, FEATURE_GROUPS), group_count(op, BATCH_GROUPS)
    if found == {"batch", "out batch"}:
        return of_batch == 1
    if found == {"kernel out", "out"}:
        return of_features == of_batch == 1
    if found == {"in", "kernel in"}:
        return of_features == 1
    outermost = all(
        factors[0] == factor for mapping in mappings for factors in mapping if factor in factors
    )
    if found == {"in", "kernel out", "out"}:
        return outermost and rule.sizes[factor] == of_features
    if found == {"batch", "kernel out", "out"}:
        return outermost and rule.sizes[factor] == of_batch
    return False


def _names(names: Mapping[int, str], mapping: Sequence[Sequence[int]], factor: int) -> set[str]:
    """Kinds of the dims of an operand or result that have the factor."""
    return {names.get(d, "window") for d, factors in enumerate(mapping) if factor in factors}


def group_count(op: ir.Operation, name: str) -> int:
    """Number of feature groups or batch groups of a convolution."""
    return int(ir.IntegerAttr(op.attributes[name]).value)
