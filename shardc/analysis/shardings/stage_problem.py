"""The sharding problem of one stage as numbers, and what its nodes and edges stand for."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.analysis.shardings.strategies import Strategy
from shardc.plan.decisions import FunctionSharding, OpSharding
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding
from shardc.plan.work import Work
from shardc.solver.problem.problem import Problem


@dataclass(frozen=True)
class EdgeReshard:
    """What an edge stands for: a value that may be resharded in `function`, `repeats` a step.

    Attributes:
        position: of the value among the results of the node that makes it.
        made, used: its shardings under each strategy of the node that makes, or uses, it.
        needed: the times [lo, hi) at which what is resharded is held beside what the nodes hold;
            None where it becomes what the node that uses it holds.
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
        op_strategies: function name -> strategies of each op's nodes, in the order of the node's.
        value_nodes: value id -> node.
        value_options: value id -> its shardings, in the order of the node's.
        function_results: function name -> value id of each result.
        function_args: function name -> value id of each argument.
        function_repeats: function name -> how often it runs per step.
        function_kinds: function name -> what it is for.
        num_flops: of one step, over all devices.
        constraints: nodes that hand a value on, for nothing, as it is to lie for several users.
        ruleless: nodes of ops that have no rule, constants and iotas excepted.
        node_functions: function that each op node is in; "" for values.
        node_works: what each node asks of a device under each strategy, and how often per step.
        node_ops: name and FLOPs per step of the op that each node is; "" where it is none.
        edge_reshards: of the first edges of `problem`; the others tie values together.
        op_reductions: node of an op -> the result that some of its strategies reduce.
        state: value ids of the arguments that results replace.
        arrival_costs: value id of an argument -> seconds per step to bring it to each of its
            options from where it lies.
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

    def shardings(self, choice: Sequence[int]) -> dict[str, FunctionSharding]:
        """What a solution's choice means for each function."""
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
