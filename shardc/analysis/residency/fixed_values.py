"""The values of a stage function that are as large in every number of microbatches."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.ir.attributes import PER_MICROBATCH, VALUE, arg_attrs, result_attrs
from shardc.ir.tensor_types import num_bytes, num_elements
from shardc.ir.walk import (
    CONTROL_FLOW,
    RETURN,
    block_terminator,
    body,
    nested_ops,
    planned_ops,
    terminator,
)

# Their results are made of the operands.
ASSEMBLE = frozenset(("stablehlo.dynamic_update_slice", "stablehlo.concatenate", "stablehlo.pad"))


class FixedValues:
    """Which values of a function do not shrink with the microbatch, such as weights and gradients.

    At the boundary of the function these are all but the batch and what is `PER_MICROBATCH`.
    Inside, values of one op with equally many elements are alike, products aside, as are the values
    that control flow hands on; a result that is no larger than its operands is fixed if all of them
    are, and so are the parts from which a fixed value is assembled. All others are assumed to
    shrink. A mistake makes an estimate worse, but never a plan wrong: exact plans do not use this.

    Args:
        batch: value ids of the arguments that hold the rows of all microbatches.
    """

    def __init__(self, function: ir.Operation, batch: Collection[str] = ()) -> None:
        self._ops = nested_ops(function)
        self._planned = planned_ops(function)
        self._above: dict[ir.Value, ir.Value] = {}
        self._fixed: dict[ir.Value, bool] = {}  # of the first of values that are alike
        for op in self._ops:
            for one, other in _alike(op):
                first, above = self._first(one), self._first(other)
                if first != above:
                    self._above[first] = above
        arguments, results = body(function).arguments, terminator(function).operands
        boundary = [
            *zip(arguments, arg_attrs(function), strict=True),
            *zip(results, result_attrs(function), strict=True),
        ]
        for value, attrs in boundary:
            name, first = str(ir.StringAttr(attrs[VALUE]).value), self._first(value)
            fixed = PER_MICROBATCH not in attrs and name not in batch
            self._fixed[first] = fixed and self._fixed.get(first, True)
        while self._spread(self._ops) or self._spread(self._ops[::-1]):
            pass

    def __contains__(self, value: ir.Value) -> bool:
        return self._fixed.get(self._first(value), False)

    @cached_property
    def shares(self) -> list[float]:
        """The share of fixed values in the bytes that each planned op reads and writes."""
        return [self._share([*op.operands, *op.results]) for op in self._planned]

    @cached_property
    def results(self) -> list[tuple[bool, ...]]:
        """For each planned op, whether each of its results is fixed."""
        return [tuple(result in self for result in op.results) for op in self._planned]

    def _share(self, values: Sequence[ir.Value]) -> float:
        large = [value for value in values if num_elements(value) > 1]
        total = sum(map(num_bytes, large))
        return sum(num_bytes(v) for v in large if v in self) / total if total else 0.0

    def _first(self, value: ir.Value) -> ir.Value:
        while value in self._above:
            above = self._above[value]
            if above in self._above:
                self._above[value] = self._above[above]
            value = above
        return value

    def _spread(self, ops: Iterable[ir.Operation]) -> bool:
        """Marks values that follow from fixed ones; whether there were any."""
        known = len(self._fixed)
        for op in ops:
            if op.name in CONTROL_FLOW or op.name == RETURN:
                continue
            operands = [value for value in op.operands if num_elements(value) > 1]
            if operands and all(value in self for value in operands):
                most = max(map(num_elements, operands))
                for result in op.results:
                    if op.name in PRODUCTS or num_elements(result) <= most:
                        self._fixed.setdefault(self._first(result), True)
            if op.name in ASSEMBLE and op.results[0] in self:
                for value in operands:
                    self._fixed.setdefault(self._first(value), True)
        return len(self._fixed) > known


def _alike(op: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Pairs of values of an op that both shrink with the microbatch, or both do not."""
    if op.name == "stablehlo.while":
        yield from zip(op.operands, op.results, strict=True)
        for region in op.regions:
            yield from zip(region.blocks[0].arguments, op.operands, strict=True)
        yield from zip(block_terminator(op.regions[1].blocks[0]).operands, op.results, strict=True)
    elif op.name in CONTROL_FLOW:
        for region in op.regions:
            yield from zip(block_terminator(region.blocks[0]).operands, op.results, strict=True)
    elif op.name not in PRODUCTS:
        of_size: dict[int, ir.Value] = {}
        for value in (*op.operands, *op.results):
            size = num_elements(value)
            if size > 1:
                first = of_size.setdefault(size, value)
                if first != value:
                    yield value, first
