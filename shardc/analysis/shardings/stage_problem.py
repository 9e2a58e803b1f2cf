"""The sharding problem of one stage as numbers, and the meaning of its nodes and edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.shardings.strategies import Strategy
from shardc.plan.decisions import FunctionSharding, OpSharding
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding
from shardc.plan.priced_work import Work
from shardc.solver.problem.problem import Problem


@dataclass(frozen=True)
class EdgeReshard:
    """The meaning of an edge: a value that may be resharded in `function`, `repeats` times a step.

    Attributes:
        position: of the value among the results of the node that defines it.
        made, used: its shardings under each strategy of the node that defines, or uses, it.
        needed: live range [lo, hi) of the resharded copy, in addition to the memory of the nodes;
            None if the copy is the memory of the node that uses it.
    """

    function: str
    position: int
    shape: tuple[int, ...]
    dtype: str
    made: tuple[TensorSharding, ...]
    used: tuple[TensorSharding, ...]
    repeats: int
    needed: tuple[int, int] | None


@dataclass(frozen=True)
class OpReduction:
    """The result of an op that can reduce it over the devices itself (a max over a split dim)."""

    shape: tuple[int, ...]
    dtype: str
    repeats: int


@dataclass(frozen=True)
class StageProblem:
    """A problem and what its nodes stand for.

    Attributes:
        problem: for `shardc.solver.solve`; seconds per step and bytes per device.
        op_nodes: function name -> nodes of each planned op: one, or several for barriers and
            control flow.
        op_strategies: function name -> strategies of each op's nodes, in the node's order.
        value_nodes: value id -> node.
        value_options: value id -> its shardings, in the node's order.
        function_results: function name -> value id of each result.
        function_args: function name -> value id of each argument.
        function_repeats: function name -> runs per step.
        function_kinds: function name -> its kind.
        num_flops: of one step, over all devices.
        constraints: nodes of constraints, which forward a value in the sharding of several users.
        ruleless: nodes of ops without a rule, except constants and iotas.
        node_functions: function of each op node; "" for values.
        node_works: work of each node on one device under each strategy, and its runs per step.
        node_ops: op name and FLOPs per step of each node; "" if it is not an op.
        edge_reshards: of the first edges of `problem`; the other edges tie values together.
        op_reductions: node of an op -> the result that some of its strategies reduce.
        state: value ids of the arguments that results replace.
        arrival_costs: value id of an argument -> seconds per step to transfer it to each of its
            options.
        copied: nodes of values that exist once per microbatch in flight.
        stashes: number of microbatches in flight.
    """

    problem: Problem
    op_nodes: dict[str, list[tuple[int, ...]]]
    op_strategies: dict[str, list[tuple[tuple[Strategy, ...], ...]]]
    value_nodes: dict[str, int]
    value_options: dict[str, tuple[TensorSharding, ...]]
    function_results: dict[str, tuple[str, ...]]
    function_args: dict[str, tuple[str, ...]]
    function_repeats: dict[str, int]
    function_kinds: dict[str, FunctionKind]
    num_flops: int
    constraints: frozenset[int]
    ruleless: frozenset[int]
    node_functions: list[str]
    node_works: list[tuple[Sequence[Work], int]]
    node_ops: list[tuple[str, int]]
    edge_reshards: list[EdgeReshard]
    op_reductions: dict[int, OpReduction]
    state: frozenset[str]
    arrival_costs: dict[str, list[float]]
    copied: frozenset[int]
    stashes: int

    def of_equal(
        self, functions: Sequence[tuple[str, Sequence[str], Sequence[str]]], stashes: int
    ) -> "StageProblem":
        """The problem of an equal stage on an equal mesh, which differs in names and in what it
        stashes.

        Args:
            functions: its own: their names, and the value ids of their arguments and results.
            stashes: microbatches that it has in flight.
        """
        names: dict[str, str] = {}
        values: dict[str, str] = {}
        for own, (name, args, results) in zip(self.op_nodes, functions, strict=True):
            names[own] = name
            values |= zip(self.function_args[own], args, strict=True)
            values |= zip(self.function_results[own], results, strict=True)
        usages = [
            usage // self.stashes * stashes
            if node in self.copied and stashes != self.stashes
            else usage
            for node, usage in enumerate(self.problem.usages)
        ]

        def of_functions[Data](found: Mapping[str, Data]) -> dict[str, Data]:
            return {names[name]: data for name, data in found.items()}

        def of_values[Data](found: Mapping[str, Data]) -> dict[str, Data]:
            return {values[value]: data for value, data in found.items()}

        def ids(found: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
            return {names[f]: tuple(values[v] for v in own) for f, own in found.items()}

        return replace(
            self,
            problem=replace(self.problem, usages=usages),
            op_nodes=of_functions(self.op_nodes),
            op_strategies=of_functions(self.op_strategies),
            value_nodes=of_values(self.value_nodes),
            value_options=of_values(self.value_options),
            function_results=ids(self.function_results),
            function_args=ids(self.function_args),
            function_repeats=of_functions(self.function_repeats),
            function_kinds=of_functions(self.function_kinds),
            node_functions=[names.get(name, name) for name in self.node_functions],
            edge_reshards=[
                replace(each, function=names[each.function]) for each in self.edge_reshards
            ],
            arrival_costs=of_values(self.arrival_costs),
            stashes=stashes,
        )

    def shardings(self, choice: Sequence[int]) -> dict[str, FunctionSharding]:
        """The shardings of each function under a solution's choice."""
        at = {
            value: self.value_options[value][choice[node]]
            for value, node in self.value_nodes.items()
        }
        found = {}
        for name, nodes in self.op_nodes.items():
            found[name] = FunctionSharding(
                tuple(at[value] for value in self.function_args[name]),
                tuple(at[value] for value in self.function_results[name]),
                tuple(
                    _op_sharding([s[choice[node]] for node, s in zip(parts, options, strict=True)])
                    for parts, options in zip(nodes, self.op_strategies[name], strict=True)
                ),
            )
        return found


def _op_sharding(parts: Sequence[Strategy]) -> OpSharding:
    return OpSharding(
        tuple(sharding for part in parts for sharding in part.operands),
        tuple(sharding for part in parts for sharding in part.results),
        tuple(axis for part in parts for axis in part.reduce_axes),
    )
