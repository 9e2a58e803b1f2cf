"""The ops of one stage function as nodes of the sharding problem."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.op_work import op_works
from shardc.analysis.shardings.problem_graph import FunctionFacts, Node, ProblemGraph, ValueFacts
from shardc.analysis.shardings.reshard_tables import Column, StrategyColumns
from shardc.analysis.shardings.stage_problem import OpReduction
from shardc.analysis.shardings.strategies import (
    Strategy,
    can_start_sums,
    identity_strategies,
    matching_request,
    result_strategies,
    user_strategies,
    whole_strategy,
)
from shardc.cost.model import CostModel
from shardc.ir.attributes import ASKED
from shardc.ir.user_shardings import CONSTRAINT, UserSharding, read_user_sharding
from shardc.ir.walk import (
    CONTROL_FLOW,
    RETURN,
    block_terminator,
    body,
    ops,
    terminator,
    where,
)
from shardc.plan.priced_work import Work
from shardc.rules.allowed_factors import BARRIER
from shardc.rules.op_rule import OpRule
from shardc.solver.interrupt import poll


class Defined(NamedTuple):
    """The definition of a value.

    Attributes:
        source: its node, and its position among the results of the node.
        runs: of its defining op per step.
        unreduced: whether it may be a partial sum.
    """

    source: tuple[int, int]
    runs: int
    unreduced: bool


Options = tuple[tuple[Strategy, ...], ...]  # strategies of each node of an op


class FunctionNodes:
    """Adds the ops of a function to a problem.

    An op is one node. A barrier has one node per operand, a loop one per carried value, a branch
    one for its predicate and one per result: these are independent of each other. The ops inside
    loops and branches are nodes too. Their cost is multiplied by the loop's trip count (1 if
    unknown); both branches of an `if` count.

    Args:
        facts: of the function.
        ignored: positions of user constraints to ignore.
    Attributes:
        nodes: of each of the function's `planned_ops`.
        options: the strategies of each of these nodes.
        num_flops: of one step, over all devices.
        constraints: nodes of constraints.
        ruleless: nodes of ops without a rule, except constants and iotas.
        in_place: pairs of nodes that must have the same sharding: of a loop, and of the value that
            it updates in place.
    """

    def __init__(
        self,
        graph: ProblemGraph,
        model: CostModel,
        facts: FunctionFacts,
        start: int,
        repeats: int,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self.ignored = ignored
        self.graph, self.model = graph, model
        self.facts, self.function = facts, facts.function
        self.start, self.repeats = start, repeats
        self.nodes: list[tuple[int, ...]] = []
        self.options: list[Options] = []
        self.num_flops = 0
        self.constraints: list[int] = []
        self.ruleless: list[int] = []
        self.in_place: list[tuple[int, int]] = []
        self._rules: Iterator[OpRule | None] = iter(facts.rules)
        self._live, self._traffic = facts.live, facts.traffic
        self._returned: dict[int, int] = {}  # number of a returned value -> node of the result
        self._defined: dict[int, Defined] = {}  # by the number of the value

    def run(self, arguments: Sequence[tuple[int, bool]], results: Sequence[int]) -> None:
        """Adds all nodes and edges.

        Args:
            arguments: for each argument its node, and whether it may be unreduced.
            results: the node of each result.
        """
        for value, (node, unreduced) in zip(body(self.function).arguments, arguments, strict=True):
            self._define(self.facts.value(value), (node, 0), self.repeats, unreduced)
        returned = [self.facts.value(value) for value in terminator(self.function).operands]
        numbers = (value.number for value in returned)
        self._returned = dict(zip(numbers, results, strict=True))
        for op in ops(self.function):
            poll()
            self._add(op, self.repeats)
        for result, node in zip(returned, results, strict=True):
            self._connect(result, node, self.graph.nodes[node].results[0])

    def _define(
        self, value: ValueFacts, source: tuple[int, int], runs: int, unreduced: bool = False
    ) -> None:
        self._defined[value.number] = Defined(source, runs, unreduced)

    def _connect(self, value: ValueFacts, node: int, used: Column, time: int | None = None) -> None:
        """Adds the edge of a reshard. It is emitted in the block that defines the value, so it runs
        as often as the defining op.

        Args:
            time: position of the op that needs the value; None if the node itself holds it.
        """
        source, runs, _ = self._defined[value.number]
        if source[0] == node:
            return
        needed = None
        if time is not None:
            first, last = self.facts.needed(value, time)
            needed = self.start + first, self.start + last + 1
        self.graph.connect(source, (node, used), value, runs, needed)

    def _add(self, op: ir.Operation, repeats: int, inside_condition: bool = False) -> None:
        time = len(self.nodes)
        rule = next(self._rules)
        self.nodes.append(())
        self.options.append(())
        if op.name == BARRIER:
            parts, options = self._barrier(op, time, repeats)
        elif op.name == CONSTRAINT:
            parts, options = self._constraint(op, time, repeats)
        elif op.name == "stablehlo.while":
            parts, options = self._loop(op, time, repeats)
        elif op.name in CONTROL_FLOW:
            parts, options = self._branch(op, time, repeats)
        else:
            parts, options = self._op(op, None if inside_condition else rule, time, repeats)
            if rule is None and op.name not in ("stablehlo.constant", "stablehlo.iota"):
                self.ruleless += parts
        self.nodes[time], self.options[time] = parts, options

    def _op(
        self, op: ir.Operation, rule: OpRule | None, time: int, repeats: int
    ) -> tuple[tuple[int, ...], Options]:
        operands, results = self.facts.operands(op, time), self.facts.results(op, time)
        flags = tuple(self._defined[operand.number].unreduced for operand in operands)
        facts = self.facts.of(op, time, rule, flags)
        cost, strategies = facts.cost, facts.splitting.on(self.graph.mesh)
        if ASKED in op.attributes:
            strategies = matching_request(op, strategies)
        columns = self.graph.reshards.columns(strategies)
        num_result_bytes = _result_bytes(results, columns)
        self.num_flops += cost.flops * repeats
        works = op_works(op, cost, self._traffic[time], strategies, self.graph.mesh)
        index = self.graph.add(
            Node(
                columns.results,
                self._op_costs(works, strategies, num_result_bytes, repeats),
                num_result_bytes if facts.is_held else [0] * len(strategies),
                (self.start + time, self.start + facts.until + 1),
                facts.name,
                cost.flops * repeats,
                works,
                repeats,
            )
        )
        if facts.inner_bytes:
            inner = [facts.inner_bytes // strategy.num_shards for strategy in strategies]
            self.graph.add_workspace(index, inner, self.start + time)
        if any(strategy.reduce_axes for strategy in strategies):
            self.graph.op_reductions[index] = OpReduction(
                results[0].shape, results[0].dtype, repeats
            )
        for operand, used in zip(operands, columns.operands, strict=True):
            self._connect(operand, index, used, time)
        for position, result in enumerate(results):
            self._define(result, (index, position), repeats, facts.splitting.leaves_sums)
        return (index,), (strategies,)

    def _barrier(
        self, op: ir.Operation, time: int, repeats: int
    ) -> tuple[tuple[int, ...], Options]:
        nodes, chosen = [], []
        operands, results = self.facts.operands(op, time), self.facts.results(op, time)
        for operand, result in zip(operands, results, strict=True):
            unreduced = self._defined[operand.number].unreduced
            strategies = identity_strategies(operand.value, self.graph.mesh, unreduced)
            index = self._pass_on(operand, strategies, time)
            self._define(result, (index, 0), repeats, unreduced)
            nodes.append(index)
            chosen.append(strategies)
        return tuple(nodes), tuple(chosen)

    def _constraint(
        self, op: ir.Operation, time: int, repeats: int
    ) -> tuple[tuple[int, ...], Options]:
        """A constraint: the user's sharding, or any sharding if it is open or ignored."""
        (operand,), (result,) = self.facts.operands(op, time), self.facts.results(op, time)
        asked = read_user_sharding(op.attributes["sharding"])
        if where(op) in self.ignored:
            asked = UserSharding(((),) * len(asked.dims), (True,) * len(asked.dims))
        sums = asked.asks_nothing and self._defined[operand.number].unreduced
        strategies = user_strategies(operand.value, self.graph.mesh, asked)
        if asked.asks_nothing:
            strategies = identity_strategies(operand.value, self.graph.mesh, sums)
        index = self._pass_on(operand, strategies, time)
        self._define(result, (index, 0), repeats, sums)
        self.constraints.append(index)
        return (index,), (strategies,)

    def _loop(self, op: ir.Operation, time: int, repeats: int) -> tuple[tuple[int, ...], Options]:
        """A loop carries each value in one sharding; values that its condition reads are
        replicated, so that the condition needs no collectives."""
        condition, inside = (region.blocks[0] for region in op.regions)
        nodes, chosen = [], []
        operands, results = self.facts.operands(op, time), self.facts.results(op, time)
        for operand, result, read in zip(operands, results, condition.arguments, strict=True):
            whole = next(iter(read.uses), None) is not None
            starts = self._defined[operand.number].unreduced or can_start_sums(operand.value)
            sums = not whole and starts
            strategies = identity_strategies(operand.value, self.graph.mesh, sums)
            if whole:
                strategies = whole_strategy(operand.value)
            live = max(self._live.end(time), self._live.last_use(result.value, time))
            index = self._carry(operand, strategies, (time, live), result)
            self._define(result, (index, 0), repeats, sums)
            nodes.append(index)
            chosen.append(strategies)
        trips = repeats * (trip_count(op) or 1)
        for block in (condition, inside):
            for value, result, index in zip(block.arguments, results, nodes, strict=True):
                unreduced = self._defined[result.number].unreduced
                self._define(self.facts.value(value), (index, 0), trips, unreduced)
            self._block(block, trips, block == condition)
        for handed_on, index in zip(block_terminator(inside).operands, nodes, strict=True):
            self._connect(self.facts.value(handed_on), index, self.graph.nodes[index].results[0])
        return tuple(nodes), tuple(chosen)

    def _branch(self, op: ir.Operation, time: int, repeats: int) -> tuple[tuple[int, ...], Options]:
        """The predicate is replicated; a result has the same sharding in every branch."""
        choice = whole_strategy(op.operands[0], result=False)
        nodes = [self._pass_on(self.facts.operands(op, time)[0], choice, time)]
        chosen = [choice]
        for result in self.facts.results(op, time):
            strategies = result_strategies(result.value, self.graph.mesh)
            columns = self.graph.reshards.columns(strategies)
            live = max(self._live.end(time), self._live.last_use(result.value, time))
            index = self.graph.add(
                Node(
                    columns.results,
                    [0.0] * len(strategies),
                    _result_bytes([result], columns),
                    (self.start + time, self.start + live + 1),
                )
            )
            self._define(result, (index, 0), repeats)
            nodes.append(index)
            chosen.append(strategies)
        for region in op.regions:
            self._block(region.blocks[0], repeats)
            for value, index in zip(
                block_terminator(region.blocks[0]).operands, nodes[1:], strict=True
            ):
                result_column = self.graph.nodes[index].results[0]
                self._connect(self.facts.value(value), index, result_column)
        return tuple(nodes), tuple(chosen)

    def _block(self, block: ir.Block, repeats: int, is_condition: bool = False) -> None:
        for each in block.operations:
            if each.operation.name != RETURN:
                self._add(each.operation, repeats, is_condition)

    def _pass_on(self, operand: ValueFacts, strategies: tuple[Strategy, ...], time: int) -> int:
        """A node that forwards `operand` at no cost."""
        columns = self.graph.reshards.columns(strategies)
        nothing, now = len(strategies), self.start + time
        index = self.graph.add(
            Node(columns.results, [0.0] * nothing, [0] * nothing, (now, now + 1))
        )
        self._connect(operand, index, columns.operands[0], time)
        return index

    def _carry(
        self,
        operand: ValueFacts,
        strategies: tuple[Strategy, ...],
        live: tuple[int, int],
        result: ValueFacts,
    ) -> int:
        """A node that holds `operand`, in place if possible, until it is forwarded as `result`. A
        returned value needs no memory of its own: that of the result is there from the start."""
        columns = self.graph.reshards.columns(strategies)
        usages = _result_bytes([result], columns)
        interval = self.start + live[0], self.start + live[1] + 1
        returned = self._returned.get(result.number)
        if returned is not None:
            usages = [0] * len(strategies)
            if returned == self._defined[operand.number].source[0]:
                self.in_place.append((len(self.graph.nodes), returned))
        index = self.graph.add(Node(columns.results, [0.0] * len(strategies), usages, interval))
        self._connect(operand, index, columns.operands[0])
        return index

    def _op_costs(
        self,
        works: Sequence[Work],
        strategies: tuple[Strategy, ...],
        num_result_bytes: list[int],
        repeats: int,
    ) -> list[float]:
        seconds_of = {work: self.model.op_s(work) for work in set(works)}
        found = []
        for work, s, bytes_each in zip(works, strategies, num_result_bytes, strict=True):
            seconds = seconds_of[work]
            if s.reduce_axes:
                pairs = [(self.graph.mesh.size(a), self.graph.links[a]) for a in s.reduce_axes]
                seconds += self.model.all_reduce_s(pairs, bytes_each)
            found.append(seconds * repeats)
        return found


def _result_bytes(results: Sequence[ValueFacts], columns: StrategyColumns) -> list[int]:
    """Bytes of all results on one device, under each strategy."""
    totals = [0] * len(columns.strategies)
    for result, made, shards in zip(results, columns.results, columns.shards, strict=True):
        whole, partial = result.num_bytes
        totals = [
            total + (partial if lies.unreduced else whole) // n
            for total, lies, n in zip(totals, made, shards, strict=True)
        ]
    return totals
