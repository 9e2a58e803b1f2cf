"""The cost and memory of a program's layers, per view of a submesh and number of microbatches.

Each layer is a stage of its own, whose sharding problem is solved without a memory limit but with
a price per byte of its state and stash. At price 0 that is its fastest plan; the higher the
price, the less it holds. A stage of several layers uses one price for all of them, which is the
cheapest way to meet a limit (Lagrange); its cost and memory are then arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.analysis.batch.refusal import MicrobatchRefusal
from shardc.analysis.program.stage_table import donated_arguments, named_user_shardings, next_states
from shardc.analysis.shardings.memory_report import LayerMemory, held_values, layer_memory
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
from shardc.planner.layers import Layers, outlined_samples
from shardc.planner.split_cache import Splits
from shardc.solver.problem.problem import Problem
from shardc.solver.solve import solve

LESS_KEPT = 0.7  # recomputation is priced if layers then keep less than this share of the bytes
TIE = 0.01  # the largest footprint of a layer costs this share of its time, at price 0
GAP, EFFORT_S = 0.04, 0.5  # of solving one layer
PER_PROBLEM, PER_COUNT = 50_000, 1_500_000  # equivalent pairs of strategies, approximately


@dataclass(frozen=True)
class Point:
    """One way to run a layer.

    Attributes:
        price: of everything the layer holds at price 0, relative to its time.
        again: forward values are recomputed in the backward pass instead of kept.
    """

    price: float
    again: bool = False


POINTS = (Point(0.0), Point(0.1), Point(1.0), Point(0.0, again=True), Point(1.0, again=True))


@dataclass(frozen=True)
class LayerCost:
    """One layer at one point, on one device of a view.

    Attributes:
        forward_s, backward_s: per microbatch.
        once_s: per step, before and after the microbatches.
        ideal_s: per step, if all its ops were split evenly and nothing were sent.
        memory: its memory.
        least_s: of forward_s and of backward_s, for microbatches however small.
        argument_bytes: of each of `Layers.arguments`, 0 unless held throughout the step: a stage
            holds once what several of its layers read.
    """

    forward_s: float
    backward_s: float
    once_s: float
    ideal_s: float
    memory: LayerMemory
    argument_bytes: tuple[float, ...] = ()
    least_s: tuple[float, float] = (0.0, 0.0)

    def scaled(self, ratio: float) -> "LayerCost":
        """The cost for microbatches `ratio` times as large."""
        forward, backward = self.least_s
        return replace(
            self,
            forward_s=forward + (self.forward_s - forward) * ratio,
            backward_s=backward + (self.backward_s - backward) * ratio,
            memory=self.memory.scaled(ratio),
        )

    def between(self, other: "LayerCost", share: float) -> "LayerCost":
        """Linear interpolation (or extrapolation) towards `other`, with no cost below 0."""

        def mixed(a: float, b: float) -> float:
            return max(a + share * (b - a), 0.0)

        return LayerCost(
            mixed(self.forward_s, other.forward_s),
            mixed(self.backward_s, other.backward_s),
            mixed(self.once_s, other.once_s),
            mixed(self.ideal_s, other.ideal_s),
            self.memory.between(other.memory, share),
            tuple(map(mixed, self.argument_bytes, other.argument_bytes)),
            (self.least_s[0], self.least_s[1]),
        )


@dataclass(frozen=True)
class Sends:
    """Bytes of whole values of one microbatch that cross after each sample."""

    ahead: tuple[int, ...]
    back: tuple[int, ...]

    def seconds(
        self, model: CostModel, source: Mesh, target: Mesh, ratio: float = 1.0
    ) -> list[float]:
        """Per sample, the seconds to send them from one mesh to another and back, for microbatches
        `ratio` times as large."""
        there, back_again = model.on(source), model.on(target)
        return [
            there.transfer_s(source, target, int(ahead * ratio))
            + back_again.transfer_s(target, source, int(back * ratio))
            for ahead, back in zip(self.ahead, self.back, strict=True)
        ]


class LayerCosts:
    """Prices layers on demand, each once.

    Attributes:
        work: pairs of strategies in all problems, plus `PER_PROBLEM` for each problem and
            `PER_COUNT` for each number of microbatches; the unit of a search's budget.
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
        self._splits, self._loop_cuts = splits, loop_cuts
        self._outlined: dict[tuple[int, bool], Module | None] = {(outlined[0], False): outlined[1]}
        self._facts: dict[tuple[int, bool], dict[str, FunctionFacts]] = {}
        self._sends: dict[int, Sends] = {}
        self._keeps_less: bool | None = None
        self._stashed_twice: dict[tuple[int, bool], list[set[str]]] = {}
        self._built: dict[tuple[Mesh, int, bool, int], StageProblem] = {}
        self._costs: dict[tuple[Mesh, int, int, int], LayerCost] = {}
        self.work = 0

    def samples(self, count: int, again: bool = False) -> Module | None:
        """The samples as stages, in `count` microbatches; None if that is impossible."""
        if (count, again) not in self._outlined:
            self.work += PER_COUNT
            module = self._splits.try_at(count, self._loop_cuts)
            self._outlined[count, again] = (
                None  # a requested sharding may not allow it
                if isinstance(module, MicrobatchRefusal)
                else outlined_samples(module, self.layers, again)
            )
        return self._outlined[count, again]

    def keeps_less(self, count: int) -> bool:
        """Whether layers keep clearly less with recomputation: evaluated at `count` microbatches
        and assumed for all numbers of them."""
        if self._keeps_less is None:
            kept, less = (self._kept_bytes(count, again) for again in (False, True))
            self._keeps_less = less < LESS_KEPT * kept
        return self._keeps_less

    def _kept_bytes(self, count: int, again: bool) -> int:
        """Bytes of one microbatch that forward functions leave to backward ones, in all layers."""
        module = self.samples(count, again)
        assert module is not None
        kept = [0] * len(self.layers.starts)
        for each in function_values(module.operation):
            if each.kind is FunctionKind.BACKWARD:
                kept[each.stage] += sum(s.num_bytes for s in each.args if s.per_microbatch)
        return sum(kept[sample] for sample in self.layers.samples)

    def has(self, count: int) -> bool:
        """Whether the samples exist in `count` microbatches."""
        return self.samples(count) is not None

    def sends(self, count: int) -> Sends:
        """The bytes sent from each sample to the next, in each of `count` microbatches."""
        if count not in self._sends:
            module = self.samples(count)
            assert module is not None
            self._sends[count] = _sends(module, len(self.layers.starts))
        return self._sends[count]

    def cost(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        """One kind of layer at `POINTS[point]`; `samples(count)` must exist."""
        key = view, count, point, sample
        if key not in self._costs:
            self._costs[key] = self._solve(view, count, point, sample)
        return self._costs[key]

    def is_known(self, view: Mesh, count: int, point: int) -> bool:
        return all((view, count, point, kind) in self._costs for kind in self.layers.kinds)

    def _problem(self, view: Mesh, count: int, again: bool, sample: int) -> StageProblem:
        key = view, count, again, sample
        if key not in self._built:
            module = self.samples(count, again)
            assert module is not None
            with module.context:
                operation = module.operation
                if (count, again) not in self._facts:
                    self._facts[count, again] = function_facts(operation)
                own = [f for f in functions(operation) if (get_int(f, STAGE) or 0) == sample]
                self._built[key] = ProblemBuilder(
                    own,
                    self._facts[count, again],
                    view,
                    self.cluster,
                    count,
                    1,
                    next_states(operation),
                    donated_arguments(operation),
                    named_user_shardings(operation),
                ).build(None)
        return self._built[key]

    def _solve(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        price, again = POINTS[point].price, POINTS[point].again
        built = self._problem(view, count, again, sample)
        problem = built.problem
        per_byte = tie_breaker(problem)
        costs = [
            cost + per_byte * usage
            for cost, usage in zip(problem.costs, problem.usages, strict=True)
        ]
        if price > 0.0:
            free = self.cost(view, count, free_point(point), sample)
            step_s = count * (free.forward_s + free.backward_s) + free.once_s
            memory = free.memory
            held = memory.state_bytes + memory.stash_bytes + memory.received_bytes
            per_byte = price * step_s / max(held, 1.0)
            for node in held_values(built):
                costs[node] = costs[node] + per_byte * problem.usages[node]
        problem = replace(problem, costs=costs)
        solution = solve(
            problem,
            effort_s=EFFORT_S,
            seed=self.seed,
            gap=GAP,
            hint=[0] * problem.num_nodes,
        )
        self.work += PER_PROBLEM + sum(table.size for table in problem.edge_costs)
        report = stage_report(built, solution, view, self.cluster)
        buffers = planned_reshards(built, solution.choice, view, self.cluster).buffers()
        seconds, model = report.seconds, CostModel(self.cluster).on(view)
        forward, backward = (
            model.least_s(report.asked.get(kind, ()), view)
            for kind in (FunctionKind.FORWARD, FunctionKind.BACKWARD)
        )
        return LayerCost(
            seconds.get(FunctionKind.FORWARD, 0.0),
            seconds.get(FunctionKind.BACKWARD, 0.0),
            seconds.get(FunctionKind.BEFORE, 0.0) + seconds.get(FunctionKind.UPDATE, 0.0),
            report.ideal_s * len(view.device_ids),
            layer_memory(built, solution.choice, buffers, self._received(count, again)[sample]),
            self._argument_bytes(built, solution.choice, sample),
            (forward, backward),
        )

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

    def _received(self, count: int, again: bool) -> list[set[str]]:
        """For each sample, the values that it stashes and an earlier one stashes, too."""
        if (count, again) not in self._stashed_twice:
            module = self.samples(count, again)
            assert module is not None
            self._stashed_twice[count, again] = _stashed_twice(module, len(self.layers.starts))
        return self._stashed_twice[count, again]


def free_point(point: int) -> int:
    """The point at price 0 that the price of `point` is relative to."""
    return POINTS.index(Point(0.0, POINTS[point].again))


def tie_breaker(problem: Problem) -> float:
    """A price per byte that breaks ties between equally fast choices, and affects few others."""
    least_s = sum(float(cost.min()) for cost in problem.costs)
    most_bytes = sum(float(usage.max()) for usage in problem.usages)
    return TIE * least_s / max(most_bytes, 1.0)


def _sends(outlined: Module, num_samples: int) -> Sends:
    """The bytes that cross after each stage of an outlined module."""
    ahead, back = [0] * num_samples, [0] * num_samples
    counted: set[tuple[int, str]] = set()
    values = function_values(outlined.operation)
    made = {
        spec.value: (stage, spec.num_bytes)
        for stage, _, _, _, results in values
        for spec in results
        if spec.per_microbatch
    }
    for stage, _, _, args, _ in values:
        for spec in args:
            if spec.value not in made or (stage, spec.value) in counted:
                continue
            counted.add((stage, spec.value))
            source, num_bytes = made[spec.value]
            for between in range(min(source, stage), max(source, stage)):
                (ahead if source < stage else back)[between] += num_bytes
    return Sends(tuple(ahead), tuple(back))


def _stashed_twice(outlined: Module, num_samples: int) -> list[set[str]]:
    """For each stage of an outlined module, the values its backward and an earlier one's read."""
    found: list[set[str]] = [set() for _ in range(num_samples)]
    first: dict[str, int] = {}
    for each in sorted(function_values(outlined.operation), key=lambda each: each.stage):
        if each.kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT):
            for spec in each.args:
                if spec.per_microbatch and first.setdefault(spec.value, each.stage) < each.stage:
                    found[each.stage].add(spec.value)
    return found
