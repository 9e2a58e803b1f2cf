"""Ranks the shapes of a pipeline by what their layers cost.

A shape is a number of stages, microbatches and a schedule; how many layers each stage has and which
view of its submesh comes from the dynamic program (`shardc.solver.pipeline.stages`). Shapes are
taken up best first by an estimate that is too low rather than too high, and prices of layers are
only asked for where such a shape needs them: views that no price is known of count as if all work
were split evenly and nothing were sent; prices in other microbatches are drawn through those known.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardc.cluster import Cluster
from shardc.compiler import Shape
from shardc.cost.submeshes import mesh_of, place
from shardc.errors import InfeasibleError, MicrobatchError, StageError
from shardc.options import PlanOptions
from shardc.planner.proposal import Proposal
from shardc.planner.split_cache import Splits
from shardc.planner.stage_prices import StagePrices
from shardc.solver.interrupt import poll_between
from shardc.solver.pipeline.stages import Line, Pipeline, plan_stages

PER_ROOT = 16  # first guess of the microbatches, per square root of the devices
WANTED, LEAST = (
    4,
    2,
)  # shapes whose layers are priced exactly: if they are near the best, in any case
NEAR = 1.005
SOLVES = 160  # of layers, for one search


@dataclass(frozen=True)
class Found:
    """A shape and its stages."""

    key: "Key"
    pipeline: Pipeline


@dataclass(frozen=True, order=True)
class Key:
    """What a pipeline is looked for with: `size` devices in each stage, 0 for any."""

    num_stages: int
    size: int
    num_microbatches: int
    schedule: str


class ShapeSearch:
    """The shapes of one program on one cluster.

    Attributes:
        prices: what stages cost.
        counts, whole_counts: numbers of microbatches to try with and without a pipeline.
        exhausted: the budget of solves ended before every promising shape was looked at.
    """

    def __init__(
        self,
        prices: StagePrices,
        splits: Splits,
        cluster: Cluster,
        options: PlanOptions,
        counts: Sequence[int],
        whole_counts: Sequence[int],
        schedules: Sequence[str],
        may_ask: Callable[[], bool],
    ) -> None:
        self.prices, self.splits = prices, splits
        self.cluster, self.options = cluster, options
        self.counts, self.whole_counts = list(counts), list(whole_counts)
        self.schedules = list(schedules)
        self.exhausted = False
        self._in_time = may_ask

    def run(self) -> list[Found]:
        """The fastest first; none where nothing fits."""
        keys = list(self._keys())
        if not keys:
            return []
        usual = min(keys, key=lambda key: abs(key.size - self.cluster.num_devices_per_node))
        self.prices.open_size(usual.size, self._first(usual))
        queue = [(self._least_s(key), number, key, 0) for number, key in enumerate(keys)]
        heapq.heapify(queue)
        found: list[Found] = []
        number = len(queue)
        while queue and len(found) < WANTED:
            poll_between()
            least_s, _, key, rounds = heapq.heappop(queue)
            if least_s == math.inf:
                break
            if len(found) >= LEAST and least_s > NEAR * found[0].pipeline.step_time_s:
                break
            number += 1
            if rounds == 0 and self._may_ask():
                if self.prices.open_size(key.size, self._first(key)):
                    heapq.heappush(queue, (self._least_s(key), number, key, 0))
                    continue
                self.prices.open_prices(key.size, key.num_microbatches)
            pipeline = self._best(key)
            if pipeline is None:
                continue
            if rounds > 0 and pipeline.step_time_s > least_s * (1.0 + 1e-9):
                heapq.heappush(queue, (pipeline.step_time_s, number, key, rounds))
                continue
            if rounds == 0:
                heapq.heappush(queue, (pipeline.step_time_s, number, key, 1))
                continue
            if self._may_ask() and self._price(key, pipeline):
                pipeline = self._best(key)
                if pipeline is not None:
                    heapq.heappush(queue, (pipeline.step_time_s, number, key, rounds + 1))
                continue
            found.append(Found(key, pipeline))
        self.exhausted = not self._may_ask()
        found += self._unequal(found[:2])
        return sorted(found, key=lambda each: each.pipeline.step_time_s)

    def _first(self, key: Key) -> int:
        """The microbatches at which layers are priced on a view for the first time."""
        if key.num_stages == 1:
            return key.num_microbatches
        wanted = PER_ROOT * math.sqrt(self.cluster.num_devices)
        return min(self.counts, key=lambda count: abs(math.log(count / wanted)))

    def _may_ask(self) -> bool:
        return self.prices.num_solved < SOLVES and self._in_time()

    def _keys(self) -> Iterator[Key]:
        """Every shape of equal stages, or those asked for."""
        devices, asked = self.cluster.num_devices, self.options.stages
        for size in self.prices.sizes:
            for stages in range(1, min(self.prices.num_layers, devices // size) + 1):
                if asked != "auto" and stages != asked:
                    continue
                exact = stages * size == devices or self.options.mesh != "auto"
                if not exact and (asked == "auto" or not self._is_largest(size, stages)):
                    continue
                for count in self.counts if stages > 1 else self.whole_counts:
                    names = self.schedules if stages > 1 else self.schedules[:1]
                    for name in names:
                        yield Key(stages, size, count, name)

    def _is_largest(self, size: int, stages: int) -> bool:
        fitting = [n for n in self.prices.sizes if n * stages <= self.cluster.num_devices]
        return size == max(fitting)

    def _least_s(self, key: Key) -> float:
        """Seconds that no split of the layers into equal stages gets below."""
        all_s = self.prices.least_s(key.size, key.num_microbatches)
        return all_s * (1.0 + (key.num_microbatches - 1) / key.num_stages)

    def _line(self, sizes: tuple[int, ...], devices: int, key: Key) -> Line:
        """The numbers for the dynamic program; not kept, as prices come in."""
        count, name = key.num_microbatches, key.schedule
        return Line(
            num_layers=self.prices.num_layers,
            num_devices=devices,
            sizes=sizes,
            num_microbatches=count,
            stage_s=lambda m, held: self.prices.stage_s(sizes[m], count, held),
            send_s=lambda m, crosses: self.prices.send_s(sizes[m], crosses, count),
            in_flight=lambda behind: self.prices.in_flight(name, behind, count),
            devices_per_host=self.cluster.num_devices_per_node,
        )

    def _best(self, key: Key) -> Pipeline | None:
        """The best stages of a shape by what is known."""
        line = self._line((key.size,), key.num_stages * key.size, key)
        try:
            return plan_stages(line, num_stages=key.num_stages)
        except (InfeasibleError, StageError):
            return None

    def _price(self, key: Key, pipeline: Pipeline) -> bool:
        """Asks for the prices that the stages of a pipeline rest on; whether any was new."""
        new = False
        for stage, (first, last, size) in enumerate(pipeline.stages):
            held = self._held(key, len(pipeline.stages) - 1 - stage)
            new |= self.prices.settle(size, key.num_microbatches, held, first, last)
        if self.prices.open_doubtful(key.size, self._first(key)):
            self.prices.open_prices(key.size, key.num_microbatches)
            new = True
        return new

    def _held(self, key: Key, behind: int) -> int:
        return self.prices.in_flight(key.schedule, behind, key.num_microbatches)

    def _unequal(self, best: Sequence[Found]) -> list[Found]:
        """Pipelines of any stages that are faster than the best of equal ones."""
        if self.options.mesh != "auto" or self.cluster.num_devices == 1:
            return []
        found = []
        for each in best:
            key = each.key
            sizes = self.prices.open_sizes()
            asked = None if self.options.stages == "auto" else self.options.stages
            line = self._line(sizes, self.cluster.num_devices, key)
            try:
                pipeline = plan_stages(
                    line, num_stages=asked, below_s=each.pipeline.step_time_s * (1.0 - 1e-3)
                )
            except (InfeasibleError, StageError):
                continue
            if pipeline is not None:
                found.append(Found(key, pipeline))
        return found

    def proposal(self, each: Found) -> Proposal | None:
        """The shape as the compiler takes it; None if its stages do not begin where layers do."""
        key, stages = each.key, each.pipeline.stages
        firsts = place(self.cluster, [size for _, _, size in stages])
        meshes = []
        for stage, ((first, last, size), device) in enumerate(zip(stages, firsts, strict=True)):
            held = self._held(key, len(stages) - 1 - stage)
            view = self.prices.view(size, key.num_microbatches, held, first, last)
            ids = range(device, device + size)
            meshes.append(mesh_of(view.shape, ids, self.options.mesh_axes))
        shape = Shape(
            key.num_microbatches, (), tuple(meshes), key.schedule, self.options.batch_args
        )
        origins = [self.prices.origin(first) for first, _, _ in stages[1:]]
        try:
            cut = self.splits.shape_at(shape, origins)
        except MicrobatchError:
            return None
        if cut is None:
            return None
        layers = tuple(tuple(range(first, last + 1)) for first, last, _ in stages)
        return Proposal(cut, each.pipeline.step_time_s, layers)


def distinct(found: Sequence[Found], most: int) -> list[Found]:
    """The first ones that differ in more than the number of microbatches; then the others."""
    seen: set[object] = set()
    first: list[Found] = []
    rest: list[Found] = []
    for each in found:
        key = each.key.schedule, tuple(size for *_, size in each.pipeline.stages)
        (rest if key in seen else first).append(each)
        seen.add(key)
    return list(itertools.islice((*first, *rest), most))
