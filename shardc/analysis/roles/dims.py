"""Classes of dims of a planned program, and their kinds: batch, features, experts."""

from collections.abc import Iterator, Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.analysis.roles.taint import Taint
from shardc.ir.attributes import VALUE, arg_attrs, result_attrs
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import (
    CONTROL_FLOW,
    block_terminator,
    body,
    functions,
    planned_ops,
    symbol,
    terminator,
)
from shardc.rules.op_rule import OpRule
from shardc.solver.interrupt import poll_optional

Dim = tuple[ir.Value | str, int]  # of a value in a function, or of one that functions share, by id


class Dims:
    """Classes of dims, joined where they share the outer factor of an op's sharding rule.

    Args:
        module: the stage functions of a step.
        rules: of each of their ops, from `rules_of`.
        taint: which values are computed from state alone.
        batch: id of each argument that holds the batch -> its batch dim.
    """

    def __init__(
        self,
        module: ir.Operation,
        rules: Mapping[str, Sequence[OpRule | None]],
        taint: Taint,
        batch: Mapping[str, int],
    ) -> None:
        self._parent: dict[Dim, Dim] = {}
        weights: list[Dim] = []
        experts: list[Dim] = []
        for function in functions(module):
            self._join_boundary(function)
            for op, rule in zip(planned_ops(function), rules[symbol(function)], strict=True):
                poll_optional()
                if op.name in CONTROL_FLOW:
                    self._join_control_flow(op)
                elif rule is not None:
                    self._join_factors(op, rule)
                if op.name in PRODUCTS and (weight := taint.weight_of(op)) is not None:
                    value = op.operands[weight]
                    shared = batching_dims(op)[weight]
                    for dim in range(len(shape_of(value))):
                        (experts if dim in shared else weights).append((value, dim))
        self._batch = {self._root(each) for each in batch.items()}
        self._features = {self._root(dim) for dim in weights} - self._batch
        self._experts = {self._root(dim) for dim in experts} - self._batch - self._features

    def is_batch(self, value: ir.Value, dim: int) -> bool:
        """Whether a dim is a batch dim."""
        return self._root((value, dim)) in self._batch

    def is_feature(self, value: ir.Value, dim: int) -> bool:
        """Whether the dim is a row or column dim of a parameter matrix."""
        return self._root((value, dim)) in self._features

    def is_expert(self, value: ir.Value, dim: int) -> bool:
        """Whether a dim is a batching dim of a product of parameters and activations."""
        return self._root((value, dim)) in self._experts

    def _root(self, dim: Dim) -> Dim:
        parent = self._parent
        while (up := parent.setdefault(dim, dim)) != dim:
            parent[dim] = dim = parent[up]
        return dim

    def _join(self, a: Dim, b: Dim) -> None:
        self._parent[self._root(a)] = self._root(b)

    def _join_values(self, a: ir.Value | str, b: ir.Value | str, rank: int) -> None:
        for dim in range(rank):
            self._join((a, dim), (b, dim))

    def _join_boundary(self, function: ir.Operation) -> None:
        arguments = zip(body(function).arguments, arg_attrs(function), strict=True)
        results = zip(terminator(function).operands, result_attrs(function), strict=True)
        for value, attrs in (*arguments, *results):
            name = str(ir.StringAttr(attrs[VALUE]).value)
            self._join_values(value, name, len(shape_of(value)))

    def _join_control_flow(self, op: ir.Operation) -> None:
        for region in op.regions:
            block = region.blocks[0]
            returned = block_terminator(block).operands
            if op.name != "stablehlo.while":
                pairs = zip(op.results, returned, strict=True)
            elif region == op.regions[1]:
                pairs = zip(op.results, returned, strict=True)
            else:
                pairs = zip(op.results, op.operands, strict=True)
            for a, b in pairs:
                self._join_values(a, b, len(shape_of(a)))
            if op.name == "stablehlo.while":
                for a, b in zip(op.results, block.arguments, strict=True):
                    self._join_values(a, b, len(shape_of(a)))

    def _join_factors(self, op: ir.Operation, rule: OpRule) -> None:
        first: dict[int, Dim] = {}
        for value, dims in mapped(op, rule):
            for dim, factors in enumerate(dims):
                if factors:
                    self._join(first.setdefault(factors[0], (value, dim)), (value, dim))


def mapped(
    op: ir.Operation, rule: OpRule
) -> Iterator[tuple[ir.Value, tuple[tuple[int, ...], ...]]]:
    """Operands and results of an op with the factors of their dims."""
    yield from zip(op.operands, rule.operands, strict=False)  # captures have no factors
    yield from zip(op.results, rule.results, strict=True)


def batching_dims(op: ir.Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batching dims of both operands of a product."""
    if op.name != "stablehlo.dot_general":
        return (), ()
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions)


def contracting_dims(op: ir.Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The contracting dims of both operands of a product or convolution."""
    if op.name == "stablehlo.dot_general":
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        left, right = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
        return tuple(left), tuple(right)
    if op.name == "stablehlo.convolution":
        convolution = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        return (
            (convolution.input_feature_dimension,),
            (convolution.kernel_input_feature_dimension,),
        )
    return (len(shape_of(op.operands[0])) - 1,), (0,)
