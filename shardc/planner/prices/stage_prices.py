"""What a stage of any layers costs on any submesh: arithmetic on the costs of its layers."""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.analysis.stages.stage_cuts import Origin
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.plan.layout import Mesh
from shardc.planner.prices.layer_costs import (
    POINTS,
    LayerCost,
    LayerCosts,
    prefix_sums,
    range_maxima,
)
from shardc.schedule.registry import executable_schedule
from shardc.schedule.work import Work
from shardc.solver.problem.problem import Floats, Ints

NEAR = 2.0  # between two known numbers of microbatches, prices so far from one are not asked for
ENOUGH = (1, 3)  # points behind which no other is looked at, if layers fit
MARGIN = 1.1  # of memory, within which points that hold less are priced, too
COVERED = 0.75  # of the layers are of kinds that are priced to see whether a view is worth more


class StagePrices:
    """Costs of layers put together to stages; what is not priced is drawn through what is.

    Args:
        views: of each number of devices that a stage may have.
        doubtful: of these, those that are only priced where others of their size are in the best
            pipelines.
        limit: bytes of a device.
    """

    def __init__(
        self,
        costs: LayerCosts,
        views: dict[int, list[Mesh]],
        doubtful: frozenset[Mesh],
        cluster: Cluster,
        limit: int,
        backward: bool,
    ) -> None:
        self.costs, self.cluster, self.limit = costs, cluster, limit
        self.backward = backward
        self.sizes = tuple(sorted(views))
        self.num_layers = len(costs.layers.origins)
        self._views, self._doubtful = views, doubtful
        self._samples = np.array(costs.layers.samples)
        # View, point -> kind -> microbatches.
        self._priced: dict[tuple[Mesh, int], dict[int, list[int]]] = {}
        self._tables: dict[tuple[int, int, int], tuple[Floats, Ints]] = {}
        self._of_points: dict[tuple[Mesh, int, int, int], tuple[Floats, Floats]] = {}
        self._sent: dict[tuple[int, bool, int, int], Floats] = {}
        self._ideal: dict[int, float] = {}  # kind -> seconds of a step on one device
        often = Counter(costs.layers.samples).most_common()
        covered = [sum(n for _, n in often[:k]) for k in range(len(often))]
        self._main = [
            kind
            for (kind, _), c in zip(often, covered, strict=True)
            if c < COVERED * self.num_layers
        ]

    @property
    def work(self) -> int:
        return self.costs.work

    def has(self, count: int) -> bool:
        """Whether layers can be priced in that many microbatches."""
        return self.costs.has(count)

    def origin(self, layer: int) -> Origin:
        """What begins a layer."""
        return self.costs.layers.origins[layer]

    def in_flight(self, schedule: str, behind: int, count: int) -> int:
        """Microbatches that a stage with so many behind it holds at once."""
        if not self.backward:
            return count
        # One schedule of as many stages tells it of half of them.
        stages = 1 << behind.bit_length()
        return executable_schedule(schedule).in_flight(Work(stages, count))[stages - 1 - behind]

    # ---- prices ----

    def is_open(self, size: int) -> bool:
        """Whether layers are priced on any view of a size."""
        return any((view, 0) in self._priced for view in self._views[size])

    def open_size(self, size: int, count: int) -> None:
        """Prices the layers on the views of a size."""
        clear = [view for view in self._views[size] if view not in self._doubtful]
        self._open(clear or self._views[size], size, count)

    def open_doubtful(self, size: int, count: int) -> bool:
        """Prices the layers on the doubtful views of a size, too; whether there were any."""
        views = [view for view in self._views[size] if (view, 0) not in self._priced]
        self._open(views, size, count)
        return bool(views)

    def _open(self, views: list[Mesh], size: int, count: int) -> None:
        for view in views:
            self._ask(view, count, 0, self._main)

    def open_prices(self, size: int, count: int, held: int | None) -> bool:
        """Prices layers at the points at which they hold less, on views on which an equal share of
        them would not fit; whether there were any new ones. What fits at a point is not asked for
        at a higher price; values are made again where it does not fit at a low one.

        Args:
            held: microbatches that the stage holds at once that holds most of them; None where an
                equal share is no measure, as no stages of the layers fit: at every point.
        """
        new = False
        for view in self._views[size]:
            if (view, 0) not in self._priced or self._fits(view, count, size, 0, held):
                continue
            near = self._counts_known(count)
            for point in range(1, len(POINTS)):
                if POINTS[point].again and not (self.backward and self.costs.keeps_less(near)):
                    break
                if (view, point) not in self._priced:
                    self._ask(view, near, point, self._main)
                    new = True
                if point in ENOUGH and self._fits(view, count, size, point, held):
                    break
        return new

    def open_sizes(self) -> tuple[int, ...]:
        """The sizes whose prices are known."""
        return tuple(filter(self.is_open, self.sizes))

    def settle(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Prices what the best view of a stage rests on; whether anything was not known."""
        view, point = self._choice(size, count, held, first, last)
        new = False
        for each in self._rested_on(point):
            if not self._is_sure(view, count, each):
                self._ask(view, count, each)
                new = True
        return new

    @staticmethod
    def _rested_on(point: int) -> set[int]:
        """The points that a stage at one point takes its layers from."""
        return {point - 1, point} if POINTS[point].price > 0.0 else {point}

    def _is_sure(self, view: Mesh, count: int, point: int) -> bool:
        """Whether all layers are priced in that many microbatches, or drawn between two numbers of
        them of which one is near: costs are nearly linear in the size of a microbatch."""
        if self.costs.is_known(view, count, point):
            return True
        priced = self._priced.get((view, point), {})
        known = [priced.get(kind, []) for kind in self.costs.layers.kinds]
        return all(
            min(counts, default=count) < count < max(counts, default=count)
            and min(max(n / count, count / n) for n in counts) <= NEAR
            for counts in known
        )

    def is_settled(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Whether `settle` would have nothing to price."""
        view, point = self._choice(size, count, held, first, last)
        return all(self._is_sure(view, count, each) for each in self._rested_on(point))

    def _ask(self, view: Mesh, count: int, point: int, kinds: Iterable[int] = ()) -> None:
        """Prices layers: those `kinds`, or all."""
        for kind in kinds if self._ideal and kinds else self.costs.layers.kinds:
            cost = self.costs.cost(view, count, point, kind)
            self._ideal.setdefault(kind, cost.ideal_s)
            counts = self._priced.setdefault((view, point), {}).setdefault(kind, [])
            if count not in counts:
                counts.append(count)
        self._tables.clear()
        self._of_points.clear()

    def _fits(self, view: Mesh, count: int, size: int, point: int, held: int | None) -> bool:
        """Whether an equal share of the layers fits at a point."""
        if held is None:
            return False
        stages = max(self.cluster.num_devices // size, 1)
        memory = [c.memory for c in self._all(view, count, point)]
        state = sum(m.state_bytes for m in memory) / stages
        stash = held * sum(m.stash_bytes for m in memory) / stages
        body, update = (
            max(each)
            for each in zip(*((m.body_bytes, m.update_bytes) for m in memory), strict=True)
        )
        following = sum(m.next_bytes for m in memory) / stages
        peak = state + max(stash + body, following + update)
        return bool(MARGIN * peak <= self.limit)

    def _cost(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        """The cost of a layer, exact or drawn through what is known; split evenly if nothing is."""
        counts = self._priced[view, point].get(sample)
        if not counts:
            even_s = self._ideal[sample] / count / len(view.device_ids)
            return LayerCost(even_s, 0.0, 0.0, 0.0, LayerMemory(0.0, 0.0, 0.0, 0.0))
        if count in counts:
            return self.costs.cost(view, count, point, sample)
        near = sorted(counts, key=lambda known: abs(math.log(known / count)))[:2]
        a = self.costs.cost(view, near[0], point, sample)
        if len(near) == 1:
            return a.scaled(near[0] / count)
        b = self.costs.cost(view, near[1], point, sample)
        share = (1 / count - 1 / near[0]) / (1 / near[1] - 1 / near[0])
        return a.between(b, share)

    def least_s(self, size: int, count: int) -> float:
        """Seconds of a microbatch through all layers on that many devices, or less."""
        known = [
            sum(c.forward_s + c.backward_s + c.once_s / count for c in self._all(view, count, 0))
            for view in self._views[size]
            if (view, 0) in self._priced
        ]
        if known:
            return min(known)
        return sum(self._ideal[int(s)] for s in self._samples) / count / size

    def _all(self, view: Mesh, count: int, point: int) -> list[LayerCost]:
        kinds = {kind: self._cost(view, count, point, kind) for kind in self.costs.layers.kinds}
        return [kinds[int(sample)] for sample in self._samples]

    # ---- stages ----

    def stage_s(self, size: int, count: int, held: int) -> Floats:
        """[first, last layer]: seconds of a microbatch, forward and backward, and its share of what
        runs once a step; inf where a stage with `held` microbatches in flight does not fit."""
        return self._table(size, count, held)[0]

    def view(self, size: int, count: int, held: int, first: int, last: int) -> Mesh:
        """The view on which a stage is fastest."""
        return self._choice(size, count, held, first, last)[0]

    def makes_again(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Whether a stage is fastest if it makes forward values again, and does not keep them."""
        return POINTS[self._choice(size, count, held, first, last)[1]].again

    def is_fastest(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Whether a stage takes the point at which layers are fastest."""
        return self._choice(size, count, held, first, last)[1] == 0

    def _choice(self, size: int, count: int, held: int, first: int, last: int) -> tuple[Mesh, int]:
        number = int(self._table(size, count, held)[1][first, last])
        view, point = divmod(number, len(POINTS))
        return self._views[size][view], point

    def _table(self, size: int, count: int, held: int) -> tuple[Floats, Ints]:
        key = size, count, held
        if key not in self._tables:
            best = np.full((self.num_layers, self.num_layers), np.inf)
            which = np.zeros(best.shape, np.int64)
            for number, view in enumerate(self._views[size]):
                looser: tuple[bool, Floats, Floats] | None = None
                for point in range(len(POINTS)):
                    if (view, point) not in self._priced:
                        continue
                    all_s, peak = self._stages(view, count, point, held)
                    seconds = np.where(peak <= self.limit, all_s, np.inf)
                    again = POINTS[point].again
                    if looser is not None and looser[0] == again:
                        seconds = np.minimum(seconds, self._mixed_s(*looser[1:], seconds, peak))
                    looser = again, all_s, peak
                    better = seconds < best
                    best = np.where(better, seconds, best)
                    which[better] = number * len(POINTS) + point
            best[np.tril_indices(self.num_layers, -1)] = np.inf
            self._tables[key] = best, which
        return self._tables[key]

    def _stages(self, view: Mesh, count: int, point: int, held: int) -> tuple[Floats, Floats]:
        """[first, last layer]: seconds of a microbatch and most bytes held, at one point."""
        key = view, count, point, held
        if key not in self._of_points:
            costs = self._all(view, count, point)
            memory = [c.memory for c in costs]
            state = prefix_sums([m.state_bytes for m in memory])
            received = np.array([m.received_bytes for m in memory])
            stash = held * (prefix_sums([m.stash_bytes for m in memory]) + received[:, None])
            body = range_maxima([m.body_bytes for m in memory])
            update = range_maxima([m.update_bytes for m in memory])
            following = prefix_sums([m.next_bytes for m in memory])
            self._of_points[key] = (
                prefix_sums([c.forward_s + c.backward_s + c.once_s / count for c in costs]),
                state + np.maximum(stash + body, following + update),
            )
        return self._of_points[key]

    def _mixed_s(
        self, looser_s: Floats, looser_peak: Floats, seconds: Floats, peak: Floats
    ) -> Floats:
        """Seconds of stages of which as many layers as fit take the point before, and all others
        the one that fits; inf where it does not. They hold no more than lies between, as peaks are
        sums and maxima of what layers hold."""
        apart = np.maximum(looser_peak - peak, 1.0)
        share = np.clip((self.limit - peak) / apart, 0.0, 1.0)
        fits = np.isfinite(seconds)
        return np.where(fits, share * looser_s + (1 - share) * np.where(fits, seconds, 0.0), np.inf)

    def send_s(self, size: int, crosses: bool, count: int) -> Floats:
        """Per last layer of a stage the seconds in which a microbatch goes to the next stage and
        its gradient comes back.

        Args:
            crosses: the stage ends where a node does.
        """
        known = self._counts_known(count)
        key = size, crosses, count, known
        if key not in self._sent:
            self._sent[key] = self._transfers_s(size, crosses, known, known / count)
        return self._sent[key]

    def _transfers_s(self, size: int, crosses: bool, known: int, ratio: float) -> Floats:
        """`send_s` of what is sent in `known` microbatches, times `ratio`."""
        per_node, devices = self.cluster.num_devices_per_node, self.cluster.num_devices
        size = min(size, max(devices // 2, 1))
        start = 0 if not crosses or size >= per_node else per_node - size
        if start + 2 * size > devices:
            return np.zeros(self.num_layers)
        a, b = (mesh_of((size,), range(d, d + size)) for d in (start, start + size))
        return self._between_s(CostModel(self.cluster), a, b, known, ratio)

    def sent_s(self, count: int, model: CostModel, source: Mesh, target: Mesh) -> Floats:
        """`send_s` between two meshes of any cluster."""
        known = self._counts_known(count)
        return self._between_s(model, source, target, known, known / count)

    def _between_s(self, model: CostModel, a: Mesh, b: Mesh, known: int, ratio: float) -> Floats:
        sends = self.costs.sends(known)
        there, back_again = model.on(a), model.on(b)
        each = [
            there.transfer_s(a, b, int(ahead * ratio))
            + back_again.transfer_s(b, a, int(back * ratio))
            for ahead, back in zip(sends.ahead, sends.back, strict=True)
        ]
        return np.array([each[sample] for sample in self.costs.layers.behind])

    def _counts_known(self, count: int) -> int:
        """A number of microbatches whose stage functions are there, the nearest one."""
        found = {n for kinds in self._priced.values() for counts in kinds.values() for n in counts}
        return min(found, key=lambda known: abs(math.log(known / count)), default=count)
