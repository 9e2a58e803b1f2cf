"""The factors of a function: dims of its arguments and results that calls may split."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import gcd

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import FactorCut, may_cut
from shardc.ir.attributes import CALLED_FACTORS, get_int
from shardc.ir.calls import Factors, factors_attr
from shardc.ir.clone import captures
from shardc.ir.constants import is_zero, splat_text
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import (
    CONTROL_FLOW,
    RETURN,
    block_terminator,
    body,
    nested_ops,
    planned_ops,
    terminator,
)
from shardc.rules.op_rule import OpRule
from shardc.rules.partial_sums import element_type, keeps_partial
from shardc.rules.program_rules import function_rules

_Dim = tuple[ir.Value, int]
_ADDED_UP = ("f32", "f64")  # sums of narrower parts would be rounded one by one


def find_factors(function: ir.Operation) -> tuple[Factors, tuple[int, ...], Factors]:
    """The factors of a function in which every call has a summary.

    Dims in one factor of an op's sharding rule belong to one factor of the function; so do the dims
    of a loop-carried value. A dim is not a factor if an op inside needs it whole, if a partial sum
    over it is used other than linearly on its way to a result, or if its outermost factor differs
    between values. Writes `shardc.called_factors` on the ops inside.

    Returns:
        For each argument, then each result, the factor of each dim or -1; the size of each factor;
        for each result the factors over which it is a partial sum.
    """
    dims = _Dims()
    values: list[ir.Value] = list(body(function).arguments)
    sums: dict[ir.Value, set[_Dim]] = {}
    for op, rule in zip(planned_ops(function), function_rules(function), strict=True):
        values += op.results
        values += [value for region in op.regions for value in region.blocks[0].arguments]
        for result, dim in _enter(op, rule, dims):
            sums.setdefault(result, set()).add(dim)
    dims.settle([value for value in values if shape_of(value)])
    sums = {value: set(map(dims.root, found)) for value, found in sums.items()}
    _carry_sums(function, sums, dims)
    results = list(terminator(function).operands)
    outer = [*body(function).arguments, *results]
    numbers: dict[_Dim, int] = {}
    for value in outer:
        for root in dims.roots(value):
            if dims.is_factor(root):
                numbers.setdefault(root, len(numbers))

    def numbered(value: ir.Value) -> list[int]:
        return [numbers.get(root, -1) for root in dims.roots(value)]

    for op in planned_ops(function):
        op.attributes[CALLED_FACTORS] = factors_attr(map(numbered, op.results))
    summed = (sorted(numbers[r] for r in sums.get(v, ()) if r in numbers) for v in results)
    sizes = tuple(dims.sizes[root] for root in numbers)
    return tuple(tuple(numbered(value)) for value in outer), sizes, tuple(map(tuple, summed))


class _Dims:
    """Disjoint sets of dims that are cut together, each with its number of parts, or whole."""

    def __init__(self) -> None:
        self.parents: dict[_Dim, _Dim] = {}
        self.sizes: dict[_Dim, int] = defaultdict(int)  # of roots; 0 until something is known
        self.whole: set[_Dim] = set()

    def root(self, dim: _Dim) -> _Dim:
        found = dim
        while (above := self.parents.get(found, found)) != found:
            found = above
        while dim != found:
            self.parents[dim], dim = found, self.parents.get(dim, found)
        return found

    def roots(self, value: ir.Value) -> list[_Dim]:
        """The set of each dim of a value."""
        return [self.root((value, d)) for d in range(len(shape_of(value)))]

    def join(self, dims: Sequence[_Dim], size: int) -> None:
        """Unites these dims; the number of parts divides `size`."""
        first, *rest = map(self.root, dims)
        for other in rest:
            if other != first:
                self.parents[other] = first
                size = gcd(size, self.sizes.pop(other, 0))
                if other in self.whole:
                    self.whole.add(first)
        self.sizes[first] = gcd(size, self.sizes[first])

    def keep_whole(self, dims: Sequence[_Dim]) -> None:
        self.whole.update(map(self.root, dims))

    def settle(self, values: Sequence[ir.Value]) -> None:
        """Keeps whole a set with two dims of one value; a dim's size limits its parts."""
        for value in values:
            roots = self.roots(value)
            for root, size in zip(roots, shape_of(value), strict=True):
                self.sizes[root] = gcd(size, self.sizes[root])
            self.whole.update(root for root, count in Counter(roots).items() if count > 1)

    def is_factor(self, root: _Dim) -> bool:
        return root not in self.whole and self.sizes[root] > 1


def _all_dims(values: Sequence[ir.Value]) -> list[_Dim]:
    return [(value, d) for value in values for d in range(len(shape_of(value)))]


def _enter(op: ir.Operation, rule: OpRule | None, dims: _Dims) -> list[tuple[ir.Value, _Dim]]:
    """Unites the dims of an op; returns its partial sums, each with a dim of the summed factor."""
    if op.name == "stablehlo.while":
        carried = [op.operands, op.results, block_terminator(op.regions[1].blocks[0]).operands]
        carried += [region.blocks[0].arguments for region in op.regions]
        _enter_equal(list(zip(*carried, strict=True)), dims)
    elif op.name in CONTROL_FLOW:
        ends = [block_terminator(region.blocks[0]).operands for region in op.regions]
        _enter_equal(list(zip(op.results, *ends, strict=True)), dims)
    elif op.name == "stablehlo.iota":
        dims.keep_whole([(op.results[0], get_int(op, "iota_dimension") or 0)])
    elif op.name != "stablehlo.constant" or splat_text(op) is None:
        dims.keep_whole(_all_dims(captures(op)))  # by a reducer
        if rule is not None:
            return _enter_ruled(op, rule, dims)
        dims.keep_whole(_all_dims([*op.operands, *op.results]))
    return []


def _enter_equal(groups: Sequence[Sequence[ir.Value]], dims: _Dims) -> None:
    for values in groups:
        for d, size in enumerate(shape_of(values[0])):
            dims.join([(value, d) for value in values], size)


def _enter_ruled(op: ir.Operation, rule: OpRule, dims: _Dims) -> list[tuple[ir.Value, _Dim]]:
    outermost: dict[int, list[_Dim]] = defaultdict(list)
    inner: set[int] = set()
    for values, mappings in ((op.operands, rule.operands), (op.results, rule.results)):
        for value, mapping in zip(values, mappings, strict=True):
            for d, factors in enumerate(mapping):
                if factors:
                    outermost[factors[0]].append((value, d))
                    inner.update(factors[1:])
                elif shape_of(value)[d] != 1:
                    dims.keep_whole([(value, d)])
    found: list[tuple[ir.Value, _Dim]] = []
    for f, places in outermost.items():
        kind = may_cut(op, rule, FactorCut(f)) if f not in inner else None
        summed = [value for r, value in enumerate(op.results) if rule.is_summed(r, f)]
        if kind is None or any(element_type(value) not in _ADDED_UP for value in summed):
            dims.keep_whole(places)
        else:
            dims.join(places, rule.sizes[f])
            found += [(value, places[0]) for value in summed]
    return found


def _carry_sums(function: ir.Operation, sums: dict[ir.Value, set[_Dim]], dims: _Dims) -> None:
    """Propagates `sums` through linear ops; a factor stays whole if any other op, or control flow,
    uses one of its partial sums."""
    for op in nested_ops(function):
        incoming = {root for value in op.operands for root in sums.get(value, ())}
        nested = op.block != body(function)
        if nested:
            incoming |= {root for value in op.results for root in sums.get(value, ())}
        incoming |= {root for value in captures(op) for root in sums.get(value, ())}
        for root in incoming:
            partial = {p for p, value in enumerate(op.operands) if root in sums.get(value, ())}
            linear = not nested and op.name not in CONTROL_FLOW and op.name != RETURN
            linear = linear and not any(root in dims.roots(value) for value in op.operands)
            linear = linear and all(root in sums.get(v, {root}) for v in op.operands)
            zero = {p for p, value in enumerate(op.operands) if is_zero(value)}
            if linear and keeps_partial(op, partial, zero):
                for value in op.results:
                    if element_type(value) not in _ADDED_UP:
                        dims.keep_whole([root])
                    sums.setdefault(value, set()).add(root)
            else:
                dims.keep_whole([root])
