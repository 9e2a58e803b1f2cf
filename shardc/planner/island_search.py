"""Pipelines over islands of unlike devices: each stage on one island, at its pace.

Two or more islands form a line, in any order. Layers are priced on each island, and
the dynamic program (`shardc.solver.pipeline.stages`) cuts them into stages that fill the line.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.options import PlanOptions
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import Recompute
from shardc.planner.budget import BUDGET
from shardc.planner.prices.sends import Crossing, takes_turns
from shardc.planner.proposal import Proposal, by_use, proposal_of
from shardc.planner.shapes import ShapeSearch
from shardc.planner.split_cache import Splits
from shardc.solver.interrupt import poll_between
from shardc.solver.pipeline.stage_line import INSIDE, Line, Place
from shardc.solver.pipeline.stages import Pipeline, plan_stages
from shardc.solver.problem.problem import Floats


@dataclass(frozen=True)
class Asked:
    """One query of the dynamic program: islands by number, in the order of their stages."""

    order: tuple[int, ...]
    num_microbatches: int
    schedule: str


class IslandSearch:
    """Searches the pipelines of one program over the islands of a cluster, or on one of them.

    Args:
        alone: for each island, the search for shapes on it alone.
        counts: numbers of microbatches to try.
        spent: the spent share of the search's time.
    """

    def __init__(
        self,
        cluster: Cluster,
        alone: Sequence[ShapeSearch],
        splits: Splits,
        options: PlanOptions,
        counts: Sequence[int],
        schedules: Sequence[str],
        spent: Callable[[], float],
    ) -> None:
        self.cluster, self._alone = cluster, list(alone)
        self.prices = [search.prices for search in alone]
        self._splits, self._options = splits, options
        usual = by_use([count for count in counts if count > 1], cluster, splits.rows)
        one = [1] if options.microbatches in ("auto", 1) else []
        self._counts = [*_apart(usual)[: BUDGET.counts_of_islands], *one]
        self._schedules, self._spent = list(schedules), spent
        self._model = CostModel(cluster)
        sizes = [island.num_devices for island in cluster.islands]
        self._firsts = [0, *itertools.accumulate(sizes)]

    def run(self) -> list[Proposal]:
        """Proposals, fastest first; none if nothing fits."""
        own = [self._on_one(number) for number in range(len(self._alone))]
        proposals = [each for each in (*own, *self._across()) if each is not None]
        return sorted(proposals, key=lambda each: each.step_time_s)

    def _on_one(self, number: int) -> Proposal | None:
        """The fastest on one island alone."""
        search, first = self._alone[number], self._firsts[number]
        proposal = next((search.proposal(each) for each in search.run()[:1]), None)
        return None if proposal is None else proposal.from_device(first)

    def _across(self) -> list[Proposal | None]:
        """The fastest pipelines on two or more islands."""
        self._open()
        found: list[tuple[Asked, Pipeline]] = []
        left = list(self._questions())
        best = self._best_of(left)
        while best is not None and len(found) < BUDGET.wanted_of_islands:
            poll_between()
            asked, pipeline = best
            left.remove(asked)
            if self._may_ask(1.0) and self._settle(asked, pipeline):
                left.insert(0, asked)  # likely still the fastest: others soon prove slower
            else:
                found.append(best)
            best = self._best_of(left)
        return [self._proposal(*each) for each in found]

    def _best_of(self, asked: Sequence[Asked]) -> tuple[Asked, Pipeline] | None:
        """The fastest pipeline by current prices, and its query."""
        best = None
        for each in asked:
            pipeline = self._best(each, math.inf if best is None else best[1].step_time_s)
            best = best if pipeline is None else (each, pipeline)
        return best

    def _may_ask(self, share: float) -> bool:
        work = sum(prices.work for prices in self.prices)
        return work < share * BUDGET.pricing_work_of_islands and self._spent() < 1.0

    def _open(self) -> None:
        """Prices the layers on submeshes of every island, whole ones first."""
        for number, prices in enumerate(self.prices):
            for size in reversed(prices.sizes):
                share = BUDGET.opening * (number + 1) / len(self.prices)
                if self._may_ask(share) or not prices.open_sizes():
                    prices.open_size(size, self._first(number))

    def _questions(self) -> Iterator[Asked]:
        numbers = [n for n, prices in enumerate(self.prices) if prices.open_sizes()]
        orders: Iterator[tuple[int, ...]] = (
            order
            for length in range(2, len(numbers) + 1)
            for order in itertools.permutations(numbers, length)
        )
        if len(numbers) > BUDGET.most_ordered:
            orders = iter([tuple(numbers), tuple(reversed(numbers))])
        for order in orders:
            for count in self._counts:
                for name in self._schedules:
                    yield Asked(order, count, name)

    def _places(self, order: Sequence[int]) -> list[tuple[int, Place]]:
        """The possible places of stages on a line of islands, each with the island's number."""
        found, at = [], 0
        for number in order:
            island = self.cluster.islands[number]
            end, host = at + island.num_devices, island.num_devices_per_node
            sizes = self.prices[number].open_sizes()
            found += [(number, Place(size, at, end, host)) for size in sizes]
            at = end
        return found

    def _best(self, asked: Asked, below_s: float) -> Pipeline | None:
        """The best stages by current prices, if they are faster than `below_s`."""
        places, count = self._places(asked.order), asked.num_microbatches

        def stage_s(m: int, held: int) -> Floats:
            number, place = places[m]
            return self.prices[number].stage_s(place.size, count, held)

        def crossing(m: int, after: int, end: int) -> Crossing:
            (number, place), (following, theirs) = places[m], places[after]
            if number != following:
                return self._crossing(number, following, place.size, theirs.size, count)
            return self.prices[number].crossing(place.size, theirs.size, end != INSIDE, count)

        def link_s(m: int, after: int, end: int) -> Floats:
            (number, place), (following, theirs) = places[m], places[after]
            way, cut = crossing(m, after, end), (place.size, theirs.size, end != INSIDE)
            shared = number == following and takes_turns(*cut, place.host)
            return way.shared_s if shared else way.alone_s

        line = Line(
            num_layers=self.prices[0].num_layers,
            num_devices=sum(self.cluster.islands[n].num_devices for n in asked.order),
            places=tuple(place for _, place in places),
            num_microbatches=count,
            stage_s=stage_s,
            send_s=lambda m, after, end: crossing(m, after, end).trip_s,
            link_s=link_s,
            in_flight=lambda behind: self.prices[0].in_flight(asked.schedule, behind, count),
        )
        stages = None if self._options.stages == "auto" else self._options.stages
        return plan_stages(line, num_stages=stages, below_s=below_s)

    def _crossing(self, number: int, following: int, size: int, after: int, count: int) -> Crossing:
        """As `StagePrices.crossing`, from the end of one island to the beginning of another."""
        behind, first = self._firsts[number + 1], self._firsts[following]
        source = mesh_of((size,), range(behind - size, behind))
        target = mesh_of((after,), range(first, first + after))
        return self.prices[number].crossing_between(count, self._model, source, target)

    def _stages(
        self, asked: Asked, pipeline: Pipeline
    ) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
        """The island of each stage, and the arguments of `StagePrices.settle` for it."""
        places, count = self._places(asked.order), asked.num_microbatches
        behind = len(pipeline.stages) - 1
        for stage, ((first, last, size), m) in enumerate(
            zip(pipeline.stages, pipeline.places, strict=True)
        ):
            held = self.prices[0].in_flight(asked.schedule, behind - stage, count)
            yield places[m][0], (size, count, held, first, last)

    def _settle(self, asked: Asked, pipeline: Pipeline) -> bool:
        """Prices what the stages depend on, then their layers on unexplored views of their
        submeshes; whether any price was new."""
        stages = list(self._stages(asked, pipeline))
        new = False
        for number, stage in stages:
            prices = self.prices[number]
            new |= prices.has(asked.num_microbatches) and prices.settle(*stage)
        for number, (size, *_) in stages if not new and self._may_ask(BUDGET.opening) else ():
            new |= self.prices[number].open_doubtful(size, self._first(number))
        return new

    def _first(self, number: int) -> int:
        """The number of microbatches at which layers are first priced on an island."""
        has = self.prices[number].has
        return next((count for count in self._counts if has(count)), 1)

    def _proposal(self, asked: Asked, pipeline: Pipeline) -> Proposal | None:
        """The pipeline in the compiler's form; None if its stages cannot be cut this way."""
        meshes: list[Mesh] = []
        recompute: list[Recompute] = []
        held_by = []
        used = dict.fromkeys(asked.order, 0)
        for number, stage in self._stages(asked, pipeline):
            size, _, held, *_ = stage
            first = self._firsts[number] + used[number]
            used[number] += size
            view = self.prices[number].view(*stage)
            devices = range(first, first + size)
            meshes.append(mesh_of(view.shape, devices, self._options.mesh_axes))
            recompute.append(self.prices[number].recompute(*stage))
            held_by.append(held)
        shape = PipelineShape(
            asked.num_microbatches,
            (),
            tuple(meshes),
            asked.schedule,
            self._options.batch_args,
        ).recomputing(recompute, held_by)
        return proposal_of(shape, pipeline, self._splits, self.prices[0].origin)


def _apart(counts: Sequence[int]) -> list[int]:
    """Those that are at least twice, or at most half of, all earlier ones."""
    found: list[int] = []
    for count in counts:
        if all(max(count / other, other / count) >= 2 for other in found):
            found.append(count)
    return found
