"""The nodes and edges of a sharding problem under construction, and the facts behind them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.flops import OpCost, op_cost
from shardc.analysis.program.fusion import Traffic, fused_traffic
from shardc.analysis.program.liveness import Liveness, is_in_place
from shardc.analysis.program.op_classes import ON_THE_FLY
from shardc.analysis.shardings.reshard_tables import Column, reshard_tables
from shardc.analysis.shardings.stage_problem import EdgeReshard, OpReduction
from shardc.analysis.shardings.strategies import Splitting, splitting
from shardc.cost.model import CostModel
from shardc.ir.calls import facts_of, full_name
from shardc.ir.tensor_types import dtype_of, itemsize, shape_of, sum_dtype
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import defining_op, functions, symbol, terminator
from shardc.plan.layout import Mesh
from shardc.plan.priced_work import Work
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import rules_of
from shardc.solver.problem.problem import Floats, Problem


@dataclass(frozen=True)
class Node:
    """A node of the problem.

    Attributes:
        results: the sharding of each of its results under each of its strategies.
        costs: seconds of each strategy.
        usages: bytes of each strategy while the node is live.
        interval: live range, end excluded.
        op: name of its op; "" for values and for values carried by control flow.
        num_flops: of all devices together, per step.
        works: of one device under each strategy; () if it computes nothing.
        repeats: runs per step.
    """

    results: tuple[Column, ...]
    costs: Sequence[float]
    usages: Sequence[int]
    interval: tuple[int, int]
    op: str = ""
    num_flops: int = 0
    works: Sequence[Work] = ()
    repeats: int = 1


class ValueFacts(NamedTuple):
    """A value and its type.

    Attributes:
        number: of the value in its function.
        itemsizes: bytes of an element, and of one that is a partial sum.
    """

    value: ir.Value
    number: int
    shape: tuple[int, ...]
    dtype: str
    itemsizes: tuple[int, int]

    @property
    def num_bytes(self) -> tuple[int, int]:
        """Of the whole value, and of one of its partial sums; 0 if it is no tensor."""
        elements = math.prod(self.shape) if self.dtype else 0
        return elements * self.itemsizes[0], elements * self.itemsizes[1]


class ProblemGraph:
    """Collects nodes, and edges that price the reshards between them.

    Attributes:
        function: name of the function whose nodes and edges are being added; "" for values.
        node_functions: `function` of each node.
        edge_reshards: the reshards of the edges of `connect`, which come before those of `tie`.
        op_reductions: results that op nodes may reduce themselves.
        workspaces: (node, node of its temporary memory), tied strategy by strategy.
    """

    def __init__(self, mesh: Mesh, model: CostModel) -> None:
        self.mesh, self.model, self.links = mesh, model, model.links(mesh)
        links = self.links
        self.reshards = reshard_tables(mesh.axes, tuple(links.items()))
        self.nodes: list[Node] = []
        self.edges: list[tuple[int, int]] = []
        self.tables: list[Floats] = []
        self.function = ""
        self.node_functions: list[str] = []
        self.edge_reshards: list[EdgeReshard] = []
        self.op_reductions: dict[int, OpReduction] = {}
        self.workspaces: list[tuple[int, int]] = []

    def add(self, node: Node) -> int:
        """Adds a node; returns its number."""
        self.nodes.append(node)
        self.node_functions.append(self.function)
        return len(self.nodes) - 1

    def connect(
        self,
        source: tuple[int, int],
        target: tuple[int, Column],
        value: ValueFacts,
        repeats: int,
        needed: tuple[int, int] | None = None,
    ) -> None:
        """An edge that prices the reshard of `value` for every pair of strategies.

        Args:
            source: the node that defines it, and its position among the node's results.
            target: the node that uses it, and the sharding that each of its strategies requires.
            repeats: reshards per step.
            needed: as in `EdgeReshard`.
        """
        node, position = source
        made, used = self.nodes[node].results[position], target[1]
        sizes = self.model.sent_itemsizes(*value.itemsizes)
        self.edges.append((node, target[0]))
        self.tables.append(self.reshards.seconds(made, used, value.shape, sizes, repeats))
        self.edge_reshards.append(
            EdgeReshard(
                self.function, position, value.shape, value.dtype, made, used, repeats, needed
            )
        )

    def tie(self, node: int, other: int) -> None:
        """Forces two values of equal shape to have the same sharding."""
        self.edges.append((node, other))
        columns = self.nodes[node].results[0], self.nodes[other].results[0]
        self.tables.append(self.reshards.tie(*columns))

    def add_workspace(self, node: int, usages: Sequence[int], time: int) -> None:
        """Bytes that each strategy of `node` needs at `time` only."""
        nothing = [0.0] * len(usages)
        self.workspaces.append((node, self.add(Node((), nothing, usages, (time, time + 1)))))

    def problem(self, usage_limit: int | None) -> Problem:
        """The problem as numbers, under a limit of bytes per device."""
        counts = [len(self.nodes[node].costs) for node, _ in self.workspaces]
        same = [np.where(np.eye(count, dtype=bool), 0.0, np.inf) for count in counts]
        return Problem(
            costs=[np.array(node.costs) for node in self.nodes],
            edges=[*self.edges, *self.workspaces],
            edge_costs=[*self.tables, *same],
            usages=[np.array(node.usages, np.int64) for node in self.nodes],
            intervals=[node.interval for node in self.nodes],
            usage_limit=usage_limit,
        )


class OpFacts(NamedTuple):
    """Facts about one op.

    Attributes:
        splitting: how it may be split.
        cost: of the whole op, unfused.
        is_held: whether its results take memory of their own.
        until: position of the last op that needs them.
        name: `full_name`.
        inner_bytes: peak bytes of live values inside a call.
    """

    splitting: Splitting
    cost: OpCost
    is_held: bool
    until: int
    name: str
    inner_bytes: int


class FunctionFacts:
    """One function with facts about its ops; problems on several meshes share them.

    Attributes:
        rules: of each of the function's `planned_ops`.
    """

    def __init__(self, function: ir.Operation, rules: Sequence[OpRule | None]) -> None:
        self.function, self.rules = function, rules
        self._ops: dict[tuple[int, tuple[bool, ...]], OpFacts] = {}
        self._values: dict[ir.Value, ValueFacts] = {}
        self._operands: dict[int, tuple[ValueFacts, ...]] = {}
        self._results: dict[int, tuple[ValueFacts, ...]] = {}
        self._needed: dict[tuple[int, int], tuple[int, int]] = {}

    @cached_property
    def live(self) -> Liveness:
        """Live ranges of the values."""
        return Liveness(self.function)

    @cached_property
    def traffic(self) -> list[Traffic]:
        """Memory traffic of each op, as part of its fused kernel."""
        return fused_traffic(self.function)

    @cached_property
    def _crossing(self) -> set[ir.Value]:
        """The returned values, and the operands of constraints on them."""
        returned = terminator(self.function).operands
        return {*returned, *map(_constrained, returned)}

    def value(self, value: ir.Value) -> ValueFacts:
        """The facts about a value of the function."""
        if value not in self._values:
            dtype = dtype_of(value)
            sizes = itemsize(dtype), itemsize(sum_dtype(dtype))
            self._values[value] = ValueFacts(
                value, len(self._values), shape_of(value), dtype, sizes
            )
        return self._values[value]

    def operands(self, op: ir.Operation, time: int) -> tuple[ValueFacts, ...]:
        """The operands of the op at position `time`."""
        if time not in self._operands:
            self._operands[time] = tuple(map(self.value, op.operands))
        return self._operands[time]

    def results(self, op: ir.Operation, time: int) -> tuple[ValueFacts, ...]:
        """The results of the op at position `time`."""
        if time not in self._results:
            self._results[time] = tuple(map(self.value, op.results))
        return self._results[time]

    def needed(self, value: ValueFacts, time: int) -> tuple[int, int]:
        """As `Liveness.needed`."""
        key = value.number, time
        if key not in self._needed:
            self._needed[key] = self.live.needed(value.value, time)
        return self._needed[key]

    def of(
        self, op: ir.Operation, time: int, rule: OpRule | None, unreduced: tuple[bool, ...]
    ) -> OpFacts:
        """The facts about the op at position `time`; `rule` and `unreduced` as in `splitting`."""
        key = time, unreduced
        if key not in self._ops:
            free = op.name in ON_THE_FLY or is_in_place(op) or self.live.is_fused(op)
            self._ops[key] = OpFacts(
                splitting(op, rule, unreduced),
                op_cost(op),
                not (free or self._crossing.intersection(op.results)),
                max((self.live.last_use(result, time) for result in op.results), default=time),
                full_name(op),
                called.cost.inner_bytes if (called := facts_of(op)) is not None else 0,
            )
        return self._ops[key]


def function_facts(module: ir.Operation) -> dict[str, FunctionFacts]:
    """Facts about each function of a module, by name; modifying the module invalidates them."""
    rules = rules_of(module)
    return {symbol(f): FunctionFacts(f, rules[symbol(f)]) for f in functions(module)}


def _constrained(value: ir.Value) -> ir.Value:
    """The operand of the constraint that defines `value`, if one does; else `value`."""
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == CONSTRAINT else value
