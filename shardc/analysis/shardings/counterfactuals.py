"""Why a plan shards ops and arguments as it does: the costs of its choices and of alternatives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import (
    argument_names,
    arrivals,
    batch_dims,
    donated_arguments,
    named_user_shardings,
    next_states,
)
from shardc.analysis.shardings.problem_graph import function_facts
from shardc.analysis.shardings.sharding_problem import ProblemBuilder
from shardc.analysis.shardings.sharding_report import computed_s
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.analysis.shardings.strategies import Strategy
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cost.reshard import describe
from shardc.ir.attributes import NUM_MICROBATCHES, STAGE, get_int
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, planned_ops, symbol, where
from shardc.plan.decisions import FunctionSharding
from shardc.plan.layout import TensorSharding
from shardc.plan.value_id import argument_id

MOST_ALTERNATIVES = 3


@dataclass(frozen=True)
class Subject:
    """The subject of a choice: an argument, by the user's name, or an op of a stage function."""

    argument: str | None = None
    op: str = ""
    place: str = ""
    function: str = ""

    def __str__(self) -> str:
        if self.argument is not None:
            return self.argument
        return f"{self.op} at {self.place} in {self.function}"


Matches = Callable[[Subject], bool]


@dataclass(frozen=True)
class Cost:
    """Seconds per step and bytes per device that a choice accounts for, with its neighbours.

    Attributes:
        communication_s: reductions of partial sums.
        reshard_s: other reshards between it and its neighbours.
    """

    compute_s: float
    communication_s: float
    reshard_s: float
    num_bytes: int

    @property
    def seconds(self) -> float:
        return self.compute_s + self.communication_s + self.reshard_s

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(
            self.compute_s - other.compute_s,
            self.communication_s - other.communication_s,
            self.reshard_s - other.reshard_s,
            self.num_bytes - other.num_bytes,
        )


@dataclass(frozen=True)
class Choice:
    """A choice of the plan.

    Attributes:
        name: the op and its place, or the argument.
        sharding: the choice, in words.
        alternatives: the cheapest other shardings, with all neighbours unchanged: in words, and
            their additional cost.
        num_ruled_out: number of other shardings that no reshard or next state allows, with all
            neighbours unchanged.
    """

    name: str
    stage: int
    sharding: str
    cost: Cost
    alternatives: tuple[tuple[str, Cost], ...]
    num_ruled_out: int


def explain_choices(
    sharded: ir.Operation,
    planned: dict[str, FunctionSharding],
    cluster: Cluster,
    stashes: Sequence[int],
    matches: Matches,
) -> list[Choice]:
    """The choices whose subject matches.

    Args:
        sharded: stage functions with the shardings of a plan.
        planned: the same shardings.
        stashes: for each stage the microbatches in flight.
    """
    facts, placed = function_facts(sharded), meshes(sharded)
    same, asked = next_states(sharded), named_user_shardings(sharded)
    donated = donated_arguments(sharded)
    found = []
    for stage, in_flight in enumerate(stashes):
        own = [f for f in functions(sharded) if (get_int(f, STAGE) or 0) == stage]
        mesh = placed[f"stage{stage}"]
        count = get_int(sharded, NUM_MICROBATCHES) or 1
        builder = ProblemBuilder(
            own,
            facts,
            mesh,
            cluster,
            count,
            in_flight,
            same,
            donated,
            asked,
            arrivals=arrivals(sharded),
        )
        built = builder.build(None)
        scorer = _Scorer(built, _choice(built, planned), batch_dims(sharded), builder.model)
        for subject, node in _named_nodes(sharded, own, built):
            if matches(subject):
                choice = scorer.explained(str(subject), stage, node)
                if len(mesh.device_ids) == 1:  # one device: there is no alternative
                    choice = replace(choice, alternatives=(), num_ruled_out=0)
                found.append(choice)
    return found


def _named_nodes(
    sharded: ir.Operation, own: Sequence[ir.Operation], built: StageProblem
) -> Iterator[tuple[Subject, int]]:
    for n, name in enumerate(argument_names(sharded)):
        if argument_id(n) in built.value_nodes:
            yield Subject(name), built.value_nodes[argument_id(n)]
    for function in own:
        nodes_of_ops = built.op_nodes[symbol(function)]
        for op, nodes in zip(planned_ops(function), nodes_of_ops, strict=True):
            for node in nodes:
                yield Subject(None, op.name, where(op), symbol(function)), node


def _choice(built: StageProblem, planned: dict[str, FunctionSharding]) -> list[int]:
    """The index of each node's planned strategy."""
    choice = [0] * built.problem.num_nodes
    for name, nodes_of_ops in built.op_nodes.items():
        ids = (*built.function_args[name], *built.function_results[name])
        lies = (*planned[name].arguments, *planned[name].results)
        for value, sharding in zip(ids, lies, strict=True):
            choice[built.value_nodes[value]] = built.value_options[value].index(sharding)
        options_of_ops = built.op_strategies[name]
        for op, nodes, options in zip(planned[name].ops, nodes_of_ops, options_of_ops, strict=True):
            operands, results = list(op.operands), list(op.results)
            for node, strategies in zip(nodes, options, strict=True):
                first = strategies[0]
                key = (
                    tuple(operands[: len(first.operands)]),
                    tuple(results[: len(first.results)]),
                )
                del operands[: len(first.operands)], results[: len(first.results)]
                keys = [(s.operands, s.results) for s in strategies]
                choice[node] = keys.index(key)
    return choice


class _Scorer:
    """Scores the strategies of single nodes of a solved problem."""

    def __init__(
        self,
        built: StageProblem,
        choice: Sequence[int],
        batch_dims: Mapping[str, int],
        model: CostModel,
    ) -> None:
        self.built, self.choice, self.model = built, choice, model
        own = built.value_nodes
        self.counting = {own[v]: dim for v, dim in batch_dims.items() if v in own}
        self.strategies: dict[int, tuple[Strategy, ...]] = {}
        for name, nodes_of_ops in built.op_nodes.items():
            for nodes, options in zip(nodes_of_ops, built.op_strategies[name], strict=True):
                self.strategies.update(zip(nodes, options, strict=True))
        self.options = {node: built.value_options[v] for v, node in built.value_nodes.items()}
        self.edges: dict[int, list[int]] = {}
        for edge, ends in enumerate(built.problem.edges):
            for node in set(ends):
                self.edges.setdefault(node, []).append(edge)

    def explained(self, name: str, stage: int, node: int) -> Choice:
        chosen = self.choice[node]
        own = self._cost({node: chosen})
        others: dict[str, Cost] = {}
        ruled_out = 0
        for other in range(len(self.built.problem.costs[node])):
            text = self._text(node, other)
            if other == chosen or text == self._text(node, chosen):
                continue
            moved = self._with_ties(node, other)
            cost = None if moved is None else self._cost(moved)
            if cost is None or cost.seconds == float("inf"):
                ruled_out += 1
                continue
            assert moved is not None
            more = cost - self._cost({n: self.choice[n] for n in moved})
            if text not in others or more.seconds < others[text].seconds:
                others[text] = more
        ranked = sorted(others.items(), key=lambda each: (each[1].seconds, each[1].num_bytes))
        best = tuple(ranked[:MOST_ALTERNATIVES])
        return Choice(name, stage, self._text(node, chosen), own, best, ruled_out)

    def _with_ties(self, node: int, strategy: int) -> dict[int, int] | None:
        """`node` with another strategy, and the values tied to it, with theirs."""
        moved = {node: strategy}
        for edge in self.edges.get(node, []):
            if edge < len(self.built.edge_reshards):
                continue
            u, v = self.built.problem.edges[edge]
            table = self.built.problem.edge_costs[edge]
            row, other = (table[strategy], v) if u == node else (table[:, strategy], u)
            allowed = [k for k, cost in enumerate(row.tolist()) if cost < float("inf")]
            if not allowed:
                return None
            moved[other] = allowed[0]
        return moved

    def _cost(self, moved: dict[int, int]) -> Cost:
        """The cost of some nodes with these strategies, edges to all other nodes included."""
        problem = self.built.problem
        at = {**dict(enumerate(self.choice)), **moved}
        compute_s = communication_s = reshard_s = 0.0
        for node, strategy in moved.items():
            seconds = float(problem.costs[node][strategy])
            computed = self._compute_s(node, strategy)
            compute_s += computed
            communication_s += seconds - computed
        for edge in {edge for node in moved for edge in self.edges.get(node, [])}:
            u, v = problem.edges[edge]
            seconds = float(problem.edge_costs[edge][at[u], at[v]])
            if edge < len(self.built.edge_reshards):
                info = self.built.edge_reshards[edge]
                if set(info.made[at[u]].unreduced) > set(info.used[at[v]].unreduced):
                    communication_s += seconds
                    continue
            reshard_s += seconds
        num_bytes = sum(int(problem.usages[node][s]) for node, s in moved.items())
        return Cost(compute_s, communication_s, reshard_s, num_bytes)

    def _compute_s(self, node: int, strategy: int) -> float:
        """An op's seconds without its own all-reduce; 0 for a value."""
        if node not in self.strategies:
            return 0.0
        return computed_s(self.built, node, strategy, self.model)

    def _text(self, node: int, strategy: int) -> str:
        if node in self.options:
            lies = self.options[node][strategy]
            counting = self.counting.get(node)
            return describe(lies) if counting is None else _of_batch(lies, counting)
        chosen = self.strategies[node][strategy]
        takes = ", ".join(map(describe, chosen.operands))
        gives = ", ".join(map(describe, chosen.results))
        reduced = f", all-reduced over {', '.join(chosen.reduce_axes)}" * bool(chosen.reduce_axes)
        return f"({takes}) -> {gives}{reduced}"


def _of_batch(lies: TensorSharding, counting: int) -> str:
    """The sharding of a batch argument in the user's dims, without the microbatch dim."""
    axes = lies.dims[counting]
    own = TensorSharding((*lies.dims[:counting], *lies.dims[counting + 1 :]), lies.unreduced)
    return describe(own) + (f", its microbatches over {'*'.join(axes)}" if axes else "")
