"""The cost and memory of a program's layers, per view of a submesh and number of microbatches.

Each layer is a stage of its own, whose sharding problem is solved without a memory limit but with
a price per byte of its state and stash. At price 0 that is its fastest plan; the higher the
price, the less it holds. A stage of several layers uses one price for all of them, which is the
cheapest way to meet a limit (Lagrange); its cost and memory are then arithmetic.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal
from shardc.analysis.program.stage_table import (
    batch_arguments,
    donated_arguments,
    named_user_shardings,
    next_states,
)
from shardc.analysis.residency.fixed_values import FixedValues
from shardc.analysis.shardings.memory_report import held_values, layer_memory
from shardc.analysis.shardings.problem_graph import FunctionFacts, function_facts
from shardc.analysis.shardings.sharding_problem import ProblemBuilder
from shardc.analysis.shardings.sharding_report import planned_reshards, stage_report
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import STAGE, get_int
from shardc.ir.context import Module
from shardc.ir.walk import functions
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute
from shardc.planner.budget import BUDGET
from shardc.planner.layer_samples import Layers, outlined_samples
from shardc.planner.prices.derived import Amounts, More, amounts, own_stash
from shardc.planner.prices.fixed_costs import FixedCosts
from shardc.planner.prices.layer_cost import LayerCost
from shardc.planner.prices.points import KEEPING, POINTS, free_point
from shardc.planner.prices.sends import Sends, sends_of
from shardc.planner.split_cache import Splits
from shardc.solver.problem.problem import Problem
from shardc.solver.solve_once import solve_once

LESS_KEPT = 0.7  # recomputation is priced if layers then keep less than this share of the bytes
TIE = 0.01  # the largest footprint of a layer costs this share of its time, at price 0
type Cut = tuple[int, Recompute]  # microbatches, and what backward passes compute again


class LayerCosts:
    """Prices layers on demand, each once.

    Attributes:
        points: the ways to run a layer.
        rows: examples of the batch.
        work: pairs of strategies in all problems, plus `per_problem` of the budget for each problem
            and `per_count` for each number of microbatches; the unit of `pricing_work`. Counts
            1 / `priced_twice` of it if there are more points.
    """

    def __init__(
        self,
        splits: Splits,
        loop_cuts: tuple[int, ...],
        layers: Layers,
        outlined: tuple[int, Module],
        cluster: Cluster,
        seed: int,
        axes: Sequence[str] = (),
    ) -> None:
        self.layers, self.cluster, self.seed = layers, cluster, seed
        self.points = KEEPING if splits.compute_twice else POINTS
        self._times = BUDGET.priced_twice if splits.compute_twice else 1
        self.rows = splits.rows
        self._splits, self._loop_cuts = splits, loop_cuts
        self._outlined: dict[Cut, Module | None] = {(outlined[0], "user"): outlined[1]}
        self._facts: dict[Cut, dict[str, FunctionFacts]] = {}
        self._fixed: dict[Cut, dict[str, FixedValues]] = {}
        self._sends: dict[int, Sends] = {}
        self._worth: list[Recompute] = []
        self._more: dict[tuple[Recompute, int], More] = {}
        self._amounts: dict[Cut, list[Amounts]] = {}
        self._stash: dict[Recompute, list[float]] = {}  # of all microbatches
        self._stashed_twice: dict[Cut, list[set[str]]] = {}
        self._built: dict[tuple[Mesh, Cut, int], StageProblem] = {}
        self._costs: dict[tuple[Mesh, int, int, int], LayerCost] = {}
        self.work = 0

    def samples(self, count: int, recompute: Recompute = "user") -> Module | None:
        """The samples as stages, in `count` microbatches; None if that is impossible."""
        cut = count, recompute
        if cut not in self._outlined:
            self.work += BUDGET.per_count // self._times
            module = self._splits.try_at(count, self._loop_cuts)
            self._outlined[cut] = (
                None  # a requested sharding may not allow it
                if isinstance(module, MicrobatchRefusal)
                else outlined_samples(module, self.layers, recompute, self.cluster)
            )
        return self._outlined[cut]

    def amounts(self, count: int, recompute: Recompute) -> list[Amounts]:
        """What each sample computes and keeps, in `count` microbatches."""
        cut = count, recompute
        if cut not in self._amounts:
            module = self.samples(*cut)
            assert module is not None
            self._amounts[cut] = amounts(module, len(self.layers.starts), self.cluster)
        return self._amounts[cut]

    def keeps_less(self, count: int, recompute: Recompute) -> bool:
        """Whether layers keep clearly less with this recomputation than with less of it: evaluated
        at `count` microbatches and assumed for all numbers of them."""
        if not self._worth:
            kept = math.inf
            for level in dict.fromkeys(point.recompute for point in self.points):
                each = self.amounts(count, level)
                less = sum(each[sample].kept_bytes for sample in self.layers.samples)
                if less < LESS_KEPT * kept:
                    self._worth.append(level)
                    kept = less
        return recompute in self._worth

    def more(self, count: int, recompute: Recompute, kind: int) -> More:
        """What this recomputation means for a layer, beside the least of all points: evaluated at
        `count` microbatches and assumed for all numbers of them."""
        key = recompute, kind
        if key not in self._more:
            least = self.amounts(count, self.points[0].recompute)[kind]
            self._more[key] = self.amounts(count, recompute)[kind].beside(least)
        return self._more[key]

    def least_stash(self, count: int, recompute: Recompute) -> list[float]:
        """A lower bound on the bytes that all devices together stash of one of `count` microbatches
        in each sample; 0 as long as no samples with that recomputation exist."""
        if recompute not in self._stash:
            known = next((c for c, m in self._outlined.items() if c[1] == recompute and m), None)
            if known is None:
                return [0.0] * len(self.layers.starts)
            module = self._outlined[known]
            assert module is not None
            own = own_stash(module, len(self.layers.starts))
            self._stash[recompute] = [float(each * known[0]) for each in own]
        return [each / count for each in self._stash[recompute]]

    def has(self, count: int) -> bool:
        """Whether the samples exist in `count` microbatches."""
        return self.samples(count) is not None

    def sends(self, count: int) -> Sends:
        """What the samples send each other, in each of `count` microbatches."""
        if count not in self._sends:
            module = self.samples(count)
            assert module is not None
            self._sends[count] = sends_of(module, len(self.layers.starts))
        return self._sends[count]

    def cost(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        """One kind of layer at `points[point]`; `samples(count)` must exist."""
        key = view, count, point, sample
        if key not in self._costs:
            self._costs[key] = self._solve(view, count, point, sample)
        return self._costs[key]

    def is_known(self, view: Mesh, count: int, point: int) -> bool:
        return all((view, count, point, kind) in self._costs for kind in self.layers.kinds)

    def _problem(self, view: Mesh, cut: Cut, sample: int) -> StageProblem:
        key = view, cut, sample
        if key not in self._built:
            module = self.samples(*cut)
            assert module is not None
            with module.context:
                operation = module.operation
                if cut not in self._facts:
                    self._facts[cut] = function_facts(operation)
                own = [f for f in functions(operation) if (get_int(f, STAGE) or 0) == sample]
                self._built[key] = ProblemBuilder(
                    own,
                    self._facts[cut],
                    view,
                    self.cluster,
                    cut[0],
                    1,
                    next_states(operation),
                    donated_arguments(operation),
                    named_user_shardings(operation),
                ).build(None)
        return self._built[key]

    def _solve(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        price, cut = self.points[point].price, (count, self.points[point].recompute)
        built = self._problem(view, cut, sample)
        problem = built.problem
        per_byte = tie_breaker(problem)
        costs = [
            cost + per_byte * usage
            for cost, usage in zip(problem.costs, problem.usages, strict=True)
        ]
        if price > 0.0:
            free = self.cost(view, count, free_point(self.points, point), sample)
            step_s = count * (free.forward_s + free.backward_s) + free.once_s
            memory = free.memory
            held = memory.state_bytes + memory.stash_bytes + memory.received_bytes
            per_byte = price * step_s / max(held, 1.0)
            for node in held_values(built):
                costs[node] = costs[node] + per_byte * problem.usages[node]
        problem = replace(problem, costs=costs)
        solution = solve_once(
            problem,
            time_limit_s=BUDGET.layer_s,
            effort_s=BUDGET.layer.effort_s,
            seed=self.seed,
            gap=BUDGET.layer.gap,
            hint=[0] * problem.num_nodes,
        )
        work = BUDGET.per_problem + sum(table.size for table in problem.edge_costs)
        self.work += work // self._times
        report = stage_report(built, solution, view, self.cluster)
        reshards = planned_reshards(built, solution.choice, view, self.cluster)
        seconds, model = report.seconds, CostModel(self.cluster).on(view)
        fixed = FixedCosts(self._fixed_values(cut, built), model, view).of(
            built, solution.choice, reshards
        )
        passes = FunctionKind.FORWARD, FunctionKind.BACKWARD
        forward, backward = (
            model.start_s(report.asked.get(kind, ()), view) + fixed.of_kind.get(kind, 0.0)
            for kind in passes
        )
        ahead, back = (model.dispatches(report.asked.get(kind, ()), view) for kind in passes)
        return LayerCost(
            seconds.get(FunctionKind.FORWARD, 0.0),
            seconds.get(FunctionKind.BACKWARD, 0.0),
            seconds.get(FunctionKind.BEFORE, 0.0) + seconds.get(FunctionKind.UPDATE, 0.0),
            report.ideal_s * len(view.device_ids),
            layer_memory(built, solution.choice, reshards.buffers(), self._received(cut)[sample]),
            self._argument_bytes(built, solution.choice, sample),
            (forward, backward),
            fixed.ideal_s,
            (ahead, back),
        )

    def _fixed_values(self, cut: Cut, built: StageProblem) -> dict[str, FixedValues]:
        """The fixed values of each function of a sample."""
        found, module = self._fixed.setdefault(cut, {}), self.samples(*cut)
        assert module is not None
        missing = built.op_nodes.keys() - found.keys()
        batch = batch_arguments(module.operation) if missing else ()
        for name in missing:
            found[name] = FixedValues(self._facts[cut][name].function, batch)
        return found

    def _argument_bytes(
        self, built: StageProblem, choice: Sequence[int], sample: int
    ) -> tuple[float, ...]:
        """`LayerCost.argument_bytes` of a sample."""
        whole = {node for node, stashed in held_values(built).items() if not stashed}
        nodes = [built.value_nodes.get(value) for value in self.layers.arguments[sample]]
        usages = built.problem.usages
        return tuple(
            float(usages[n][choice[n]]) if n is not None and n in whole else 0.0 for n in nodes
        )

    def _received(self, cut: Cut) -> list[set[str]]:
        """For each sample, those of its stashed values that an earlier sample stashes, too."""
        if cut not in self._stashed_twice:
            module = self.samples(*cut)
            assert module is not None
            self._stashed_twice[cut] = _stashed_twice(module, len(self.layers.starts))
        return self._stashed_twice[cut]


def tie_breaker(problem: Problem) -> float:
    """A price per byte that breaks ties between equally fast choices, and affects few others."""
    least_s = sum(float(cost.min()) for cost in problem.costs)
    most_bytes = sum(float(usage.max()) for usage in problem.usages)
    return TIE * least_s / max(most_bytes, 1.0)


def _stashed_twice(outlined: Module, num_samples: int) -> list[set[str]]:
    """For each stage of an outlined module, the values its backward and an earlier one's read."""
    found: list[set[str]] = [set() for _ in range(num_samples)]
    first: dict[str, int] = {}
    for each in sorted(function_values(outlined), key=lambda each: each.stage):
        if each.kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT):
            for spec in each.args:
                if spec.per_microbatch and first.setdefault(spec.value, each.stage) < each.stage:
                    found[each.stage].add(spec.value)
    return found
