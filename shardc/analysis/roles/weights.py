"""The parameter of each product, in products that compute its gradient, too."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.analysis.roles.taint import Taint
from shardc.ir.attributes import VALUE, arg_attrs, function_kind, result_attrs
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, functions, planned_ops, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.solver.interrupt import poll_optional

_SAME = frozenset(
    "stablehlo.transpose stablehlo.reshape stablehlo.convert sdy.sharding_constraint".split()
)
_BACKWARD = (FunctionKind.BACKWARD, FunctionKind.WEIGHT)


class _Met(NamedTuple):
    """A parameter in a product with some value."""

    name: str
    sizes: tuple[int, ...]  # of its dims, sorted


class Weights:
    """The user's name of the parameter of each product of the stage functions.

    The product y = x W and those of its transposes share values: dx = dy W' shares dy, and y shares
    x, with the gradient dW = x' dy. A product without a parameter is such a gradient if it shares a
    value with a product whose parameter has the dims of its result.
    """

    def __init__(
        self, module: ir.Operation, taint: Taint, name_of: Callable[[ir.Value], str]
    ) -> None:
        self._taint, self._name_of = taint, name_of
        self._names: dict[ir.Operation, str] = {}
        self._ids: dict[ir.Value, str] = {}  # of arguments and results of functions
        self._met: dict[ir.Value | str, list[_Met]] = {}  # from forward products by x
        self._met_back: dict[ir.Value | str, list[_Met]] = {}  # from backward products by dy
        for function in functions(module):
            ends = body(function).arguments, arg_attrs(function)
            self._ids |= {v: _id(attrs) for v, attrs in zip(*ends, strict=True)}
            made = terminator(function).operands, result_attrs(function)
            self._ids |= {_root(v): _id(attrs) for v, attrs in zip(*made, strict=True)}
        own = [f for f in functions(module) if function_kind(f) is not FunctionKind.UPDATE]
        products = [
            (op, function_kind(f) in _BACKWARD)
            for f in own
            for op in planned_ops(f)
            if op.name in PRODUCTS
        ]
        for op, is_backward in products:
            poll_optional()
            self._enter(op, is_backward)
        for op, is_backward in products:
            if is_backward and op not in self._names:
                self._names[op] = self._gradient_of(op)

    def __getitem__(self, op: ir.Operation) -> str:
        """The name; "" for other ops, and where it is not known."""
        return self._names.get(op, "")

    def _enter(self, op: ir.Operation, is_backward: bool) -> None:
        position = self._taint.weight_of(op)
        if position is None:
            return
        weight = op.operands[position]
        self._names[op] = name = self._name_of(weight)
        met = self._met_back if is_backward else self._met
        other = self._key(op.operands[1 - position])
        met.setdefault(other, []).append(_Met(name, _sizes(weight)))

    def _gradient_of(self, op: ir.Operation) -> str:
        sizes = _sizes(op.results[0])
        for met in (self._met_back, self._met):
            for operand in op.operands:
                for each in met.get(self._key(operand), ()):
                    if each.sizes == sizes:
                        return each.name
        return ""

    def _key(self, value: ir.Value) -> ir.Value | str:
        """Equal for one value in all functions, whatever its layout and type."""
        root = _root(value)
        return self._ids.get(root, root)


def _root(value: ir.Value) -> ir.Value:
    """What a value has its elements from; of a microbatch's rows, the whole argument."""
    while (op := defining_op(value)) is not None:
        rows = op.name == "stablehlo.dynamic_slice" and defining_op(op.operands[0]) is None
        if op.name not in _SAME and not rows:
            break
        value = op.operands[0]
    return value


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape_of(value) if size > 1))


def _id(attrs: Mapping[str, ir.Attribute]) -> str:
    return str(ir.StringAttr(attrs[VALUE]).value)
