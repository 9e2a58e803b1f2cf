"""The functions of a microbatch in the order in which a slice runs them, and their connections."""

from collections.abc import Iterator
from functools import cached_property

from jax.extend.mlir import ir

from shardc.ir.attributes import STAGE, VALUE, arg_attrs, function_kind, get_int, result_attrs
from shardc.ir.walk import body, functions, planned_ops, symbol, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import is_accumulator
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import rules_of


class StageValues:
    """Outlined functions, as an analysis of token slices reads them.

    Attributes:
        functions: forward, first stage first, then backward, last stage first.
    """

    def __init__(self, module: ir.Operation) -> None:
        self.module = module
        own = [(f, function_kind(f)) for f in functions(module)]
        self._once = [f for f, kind in own if kind is FunctionKind.BEFORE]
        self._kinds = {f: kind for f, kind in own if kind is not None and kind.per_microbatch}
        self.functions = sorted(self._kinds, key=self._order)

    def _order(self, function: ir.Operation) -> tuple[int, int]:
        kind, stage = self._kinds[function], get_int(function, STAGE) or 0
        return kind.order, stage if kind is FunctionKind.FORWARD else -stage

    def kind(self, function: ir.Operation) -> FunctionKind:
        """The kind of one of the functions."""
        return self._kinds[function]

    def arguments(self, function: ir.Operation) -> Iterator[tuple[ir.Value, str]]:
        """Each argument and its id."""
        for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True):
            yield value, str(ir.StringAttr(attrs[VALUE]).value)

    def results(self, function: ir.Operation) -> Iterator[tuple[ir.Value, str]]:
        """Each value that a function returns, and its id."""
        returned = terminator(function).operands
        for value, attrs in zip(returned, result_attrs(function), strict=True):
            yield value, str(ir.StringAttr(attrs[VALUE]).value)

    @cached_property
    def rules(self) -> dict[ir.Operation, OpRule | None]:
        """The sharding rule of every op."""
        found = rules_of(self.module)
        return {
            op: rule
            for function in self.functions
            for op, rule in zip(planned_ops(function), found[symbol(function)], strict=True)
        }

    @cached_property
    def makers(self) -> dict[str, tuple[ir.Value, ir.Operation]]:
        """Value id -> the value, and the function of a microbatch that returns it."""
        return {
            name: (value, function)
            for function in self.functions
            for value, name in self.results(function)
            if not is_accumulator(name)
        }

    @cached_property
    def sources(self) -> dict[ir.Value, ir.Value]:
        """Argument of a function -> the value that another function of a microbatch returns."""
        return {
            argument: self.makers[name][0]
            for function in self.functions
            for argument, name in self.arguments(function)
            if name in self.makers
        }

    @cached_property
    def origins(self) -> dict[ir.Value, ir.Value]:
        """`sources`; also arguments that are computed once per step, such as a large mask -> the
        value in the function that computes it."""
        made = {name: value for function in self._once for value, name in self.results(function)}
        return self.sources | {
            argument: made[name]
            for function in (*self._once, *self.functions)
            for argument, name in self.arguments(function)
            if name in made
        }
