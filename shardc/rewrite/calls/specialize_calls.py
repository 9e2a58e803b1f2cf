"""Specialises called functions: one per combination of argument types at the calls."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardc.ir.attributes import CALLED_FACTORS, PART_OF, get_str, str_attr
from shardc.ir.calls import (
    called,
    calls_in,
    facts_of,
    functions_by_name,
    read_factors,
    set_callee,
    write_facts,
)
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, functions, ops_of, symbol
from shardc.rewrite.microbatches.control_flow import fill_with_parts
from shardc.rewrite.microbatches.ops import with_shape


def fit_calls(module: ir.Operation) -> None:
    """Makes every call in a public function call a function of its argument types.

    A function for a part is made once for all calls of the same types, and stands beside the
    original. Ops of a function that `shardc-summarize-calls` has seen know their factors.
    """
    fitter = _Fitter(module)
    fitter.waiting += functions(module)
    while fitter.waiting:
        fitter.fit(fitter.waiting.pop())


class _Fitter:
    """Creates specialised functions; the calls inside those in `waiting` come later."""

    def __init__(self, module: ir.Operation) -> None:
        self.waiting: list[ir.Operation] = []
        self.end = ir.InsertionPoint(module.regions[0].blocks[0])
        self.functions = functions_by_name(module)
        self.parts = {
            (whole, _type_of(f)): name
            for name, f in self.functions.items()
            if (whole := get_str(f, PART_OF)) is not None
        }

    def fit(self, function: ir.Operation) -> None:
        for call in calls_in(function):
            name = called(call) or ""
            takes = [value.type for value in call.operands]
            type_ = ir.FunctionType.get(takes, [value.type for value in call.results])
            if ir.TypeAttr.get(type_) == _type_of(self.functions[name]):
                continue
            key = name, ir.TypeAttr.get(type_)
            if key not in self.parts:
                self.parts[key] = self._make(self.functions[name], type_)
            set_callee(call, self.parts[key])
            facts = facts_of(self.functions[self.parts[key]])
            if facts_of(call) is not None and facts is not None:
                write_facts(call, facts)

    def _make(self, whole: ir.Operation, type_: ir.FunctionType) -> str:
        """Creates a specialisation of `whole`; returns its name."""
        names = (f"{symbol(whole)}_part{n}" for n in itertools.count())
        name = next(name for name in names if name not in self.functions)
        facts = facts_of(whole)
        assert facts is not None, f"@{symbol(whole)} is called on parts, and has not been summed up"
        shares = _shares(whole, type_, facts.factors, len(facts.sizes))
        with whole.location, self.end:
            function = func.FuncOp(name, type_).operation
            new = function.regions[0].blocks.append(*type_.inputs)
        function.attributes["sym_visibility"] = str_attr("private")
        write_facts(function, facts.cut(shares))
        function.attributes[PART_OF] = str_attr(symbol(whole))
        values: dict[ir.Value, ir.Value] = {}
        values.update(zip(body(whole).arguments, new.arguments, strict=True))
        fill_with_parts(ir.InsertionPoint(new), ops_of(body(whole)), values, _Parts(shares))
        self.functions[name] = function
        self.waiting.append(function)
        return name


class _Parts:
    """The local parts of the values inside a called function: see `local_control_flow.Parts`."""

    def __init__(self, shares: Sequence[Fraction]) -> None:
        self.shares = shares

    def type_of(self, value: ir.Value) -> ir.Type:
        if isinstance(value, ir.BlockArgument):  # a carried value
            op, position = value.owner.owner.operation, value.arg_number
        else:
            assert isinstance(value, ir.OpResult)
            op, position = value.owner.operation, value.result_number
        dims = read_factors(op.attributes[CALLED_FACTORS])[position]
        sizes = zip(shape_of(value), dims, strict=True)
        shape = [int(size * self.shares[f]) if f >= 0 else size for size, f in sizes]
        return with_shape(value, shape) if dims else value.type

    def cut_of(self, op: ir.Operation, position: int) -> None:
        return None

    def cut(self, value: ir.Value, cut: object, point: ir.InsertionPoint) -> ir.Value:
        raise AssertionError("a called function has no value that only some of its ops cut")

    def strip_mined(
        self, op: ir.Operation, operands: Sequence[ir.Value], values: Mapping[ir.Value, ir.Value]
    ) -> None:
        return None


def _shares(
    whole: ir.Operation, type_: ir.FunctionType, factors: Sequence[Sequence[int]], count: int
) -> list[Fraction]:
    """The local size of each factor if `whole` is called with other types."""
    shares = [Fraction(1)] * count
    old = ir.FunctionType(_type_of(whole).value)
    pairs = zip((*old.inputs, *old.results), (*type_.inputs, *type_.results), strict=True)
    for (before, after), dims in zip(pairs, factors, strict=True):
        for d, f in enumerate(dims):
            size, left = (ir.RankedTensorType(each).shape[d] for each in (before, after))
            assert f >= 0 or size == left, f"@{symbol(whole)} is called on a part of a whole dim"
            if f >= 0:
                shares[f] = Fraction(left, size)
    return shares


def _type_of(function: ir.Operation) -> ir.TypeAttr:
    return ir.TypeAttr(function.attributes["function_type"])
