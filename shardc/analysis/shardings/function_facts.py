"""What a sharding problem takes from the ops of a function whatever the mesh is: made once."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.program.flops import OpCost, op_cost
from shardc.analysis.program.fusion import Traffic, fused_traffic
from shardc.analysis.program.liveness import FREE, Liveness, is_in_place
from shardc.analysis.shardings.strategies import Splitting, splitting
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import functions, made_by, symbol, terminator
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import rules_of


class OpFacts(NamedTuple):
    """Of one op.

    Attributes:
        splitting: the ways to split it.
        cost: of the whole op by itself.
        is_held: its results take memory of their own.
        until: position of the last op that needs them.
    """

    splitting: Splitting
    cost: OpCost
    is_held: bool
    until: int


class FunctionFacts:
    """One function with what is known of its ops; problems on several meshes share it.

    Attributes:
        rules: of each of the function's `planned_ops`.
    """

    def __init__(self, function: ir.Operation, rules: Sequence[OpRule | None]) -> None:
        self.function, self.rules = function, rules
        self._ops: dict[tuple[int, tuple[bool, ...]], OpFacts] = {}

    @cached_property
    def live(self) -> Liveness:
        """How long values are needed."""
        return Liveness(self.function)

    @cached_property
    def traffic(self) -> list[Traffic]:
        """Of each op, as part of its kernel."""
        return fused_traffic(self.function)

    @cached_property
    def _crossing(self) -> set[ir.Value]:
        """What the function returns; what a constraint makes that of counts, too."""
        returned = terminator(self.function).operands
        return {*returned, *map(_constrained, returned)}

    def of(
        self, op: ir.Operation, time: int, rule: OpRule | None, unreduced: tuple[bool, ...]
    ) -> OpFacts:
        """The op at position `time`; `rule` and `unreduced` as of `splitting`."""
        key = time, unreduced
        if key not in self._ops:
            free = op.name in FREE or is_in_place(op) or self.live.is_fused(op)
            self._ops[key] = OpFacts(
                splitting(op, rule, unreduced),
                op_cost(op),
                not (free or self._crossing.intersection(op.results)),
                max((self.live.last_use(result, time) for result in op.results), default=time),
            )
        return self._ops[key]


def function_facts(module: ir.Operation) -> dict[str, FunctionFacts]:
    """Of each function of a module, by its name; the module must not change while they are used."""
    rules = rules_of(module)
    return {symbol(f): FunctionFacts(f, rules[symbol(f)]) for f in functions(module)}


def _constrained(value: ir.Value) -> ir.Value:
    """What a constraint makes `value` of, perhaps in another sharding; else `value`."""
    op = made_by(value)
    return op.operands[0] if op is not None and op.name == CONSTRAINT else value
