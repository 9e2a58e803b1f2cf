"""A flat step with its sharding rules and FLOPs: the input of the microbatch analysis."""

from dataclasses import dataclass, field
from functools import cached_property

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import Cut, FactorCut, Kind, may_cut
from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.flops import heavy_flops
from shardc.analysis.program.op_classes import IDENTITIES, OPAQUE
from shardc.analysis.program.value_graph import ARGUMENT, ValueGraph, value_graph
from shardc.ir.constants import is_zero
from shardc.ir.walk import defining_op, main_function
from shardc.rules.blocks import with_blocks
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import main_rules

# A matrix product is light if it is below both this share of all FLOPs and this part of the largest
# product: in a deep model every product is a small share of the total.
LIGHT_SHARE, LIGHT_PART = 0.002, 0.1

CutValue = tuple[ir.Value, Cut]  # a value and where it is cut


@dataclass(frozen=True)
class Program:
    """A flat function with its sharding rules: the input of every pass of the dataflow.

    Attributes:
        graph: its def-use chains.
        rules: of its ops.
        inner_rules: of the ops in control flow, by their first result.
        rooted: memo: whether a dim of a value comes from an argument.
    """

    graph: ValueGraph
    rules: list[OpRule | None]
    inner_rules: dict[ir.Value, OpRule]
    rooted: dict[CutValue, bool] = field(default_factory=dict)
    _cuttable: dict[tuple[int, FactorCut], Kind | None] = field(default_factory=dict)

    def may_cut(self, i: int, rule: OpRule, cut: FactorCut) -> Kind | None:
        """`batch_state.may_cut` of op i, memoized."""
        key = (i, cut)
        if key not in self._cuttable:
            self._cuttable[key] = may_cut(self.graph.ops[i], rule, cut)
        return self._cuttable[key]

    def may_cut_op(self, op: ir.Operation, rule: OpRule, cut: FactorCut) -> Kind | None:
        """`may_cut` of an op at the top level or in control flow."""
        i = self.position.get(op.results[0])
        return may_cut(op, rule, cut) if i is None else self.may_cut(i, rule, cut)

    def rule_of(self, op: ir.Operation) -> OpRule | None:
        """The rule of an op at the top level or in control flow."""
        if len(op.results) == 0:
            return None
        i = self.position.get(op.results[0])
        return self.inner_rules.get(op.results[0]) if i is None else self.rules[i]

    def flops_of(self, result: ir.Value) -> int:
        """FLOPs per step of the matrix products of the op with this first result, at the top level
        or in control flow."""
        if result in self.position:
            return self.heavy_flops[self.position[result]]
        op = defining_op(result)
        assert op is not None
        flops, parent = heavy_flops(op), op.parent
        while flops and parent is not None and parent.name != "func.func":
            if parent.name == "stablehlo.while":
                flops *= trip_count(parent.operation) or 1
            parent = parent.operation.parent
        return flops

    def is_argument(self, value: ir.Value) -> bool:
        """Whether a value is an argument of the step."""
        return value in self._arguments

    @cached_property
    def _arguments(self) -> set[ir.Value]:
        return set(self.graph.values[: self.graph.num_args])

    @cached_property
    def position(self) -> dict[ir.Value, int]:
        """The first result of each op -> its position."""
        graph = self.graph
        return {graph.values[r[0]]: i for i, r in enumerate(graph.results) if r}

    def before_barriers(self, v: int) -> int:
        """The value that barriers forward as `v`."""
        graph = self.graph
        while (i := graph.producer[v]) != ARGUMENT and graph.ops[i].name in IDENTITIES:
            v = graph.operand_at(v)
        return v

    def made_from(self, v: int) -> list[int]:
        """The results of the users of `v`, looking through barriers."""
        found, graph = [], self.graph
        for i in graph.users[v]:
            results = graph.results[i]
            if graph.ops[i].name in IDENTITIES:
                handed_on = [r for r, u in zip(results, graph.uses[i], strict=True) if u == v]
                found += [made for r in handed_on for made in self.made_from(r)]
            else:
                found += results
        return found

    @cached_property
    def heavy_flops(self) -> list[int]:
        """For each op the FLOPs of its matrix products and convolutions."""
        return [heavy_flops(op) for op in self.graph.ops]

    @cached_property
    def heavy(self) -> list[bool]:
        """For each op whether it belongs to the work that runs once per microbatch."""
        largest = max(self.heavy_flops, default=0)
        least = min(LIGHT_SHARE * sum(self.heavy_flops), LIGHT_PART * largest)
        return [
            op.name in OPAQUE or flops > least
            for op, flops in zip(self.graph.ops, self.heavy_flops, strict=True)
        ]

    @cached_property
    def zeros(self) -> set[int]:
        """Values known to be all zeros."""
        return {v for v, value in enumerate(self.graph.values) if is_zero(value)}


def program_of(module: ir.Operation) -> Program:
    """The main function of a module, ready for analysis."""
    graph = value_graph(main_function(module))
    rules, inner = main_rules(module)
    top = [rule and with_blocks(op, rule) for op, rule in zip(graph.ops, rules, strict=True)]
    inside = {v: with_blocks(op, rule) for v, rule in inner.items() if (op := defining_op(v))}
    return Program(graph, top, inside)
