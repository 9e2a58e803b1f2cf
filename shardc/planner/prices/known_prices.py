"""The cost of a stage of any layers on any submesh, computed from the known prices of layers."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.analysis.stages.stage_cuts import Origin
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute
from shardc.planner.prices.derived import interpolated, most_alike, shares
from shardc.planner.prices.layer_cost import LayerCost
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.planner.prices.points import derived_from
from shardc.planner.prices.ranges import Ranges, mixed_s
from shardc.planner.prices.sends import Crossing
from shardc.planner.prices.transfer_prices import Transfers
from shardc.planner.prices.views import Views
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work
from shardc.solver.problem.problem import Floats, Ints

NEAR = 2.0  # interpolated prices within this factor of a known number of microbatches are trusted
CLEARLY = 1.005  # views in doubt must be faster by this factor: prices are not closer


class KnownPrices:
    """Costs of stages composed of layers; unknown prices are inter- or extrapolated.

    It prices nothing: `StagePrices` does.

    Args:
        views: for each number of devices that a stage may have.
        limit: bytes of a device.

    Attributes:
        kinds: of each layer.
        often: each kind, and of how many layers, most first.
    """

    def __init__(
        self, costs: LayerCosts, views: Views, cluster: Cluster, limit: int, backward: bool
    ) -> None:
        self.costs, self.points, self.cluster, self.limit = costs, costs.points, cluster, limit
        self.backward = backward
        self.sizes = views.sizes
        self.num_layers = len(costs.layers.origins)
        self.views = views
        self.kinds = costs.layers.samples
        # View, point -> kind -> microbatches.
        self._priced: dict[tuple[Mesh, int], dict[int, list[int]]] = {}
        self._tables: dict[tuple[int, int, int, int, Mesh | None], tuple[Floats, Ints]] = {}
        self._of_points: dict[tuple[Mesh, int, int], Ranges] = {}
        self._near: dict[tuple[int, int, int], int] = {}
        self._transfers = Transfers(costs, cluster)
        self._held: dict[tuple[str, int, int], int] = {}
        self._ideal: dict[int, tuple[int, LayerCost]] = {}  # kind -> its first price
        self.often = Counter(costs.layers.samples).most_common()

    def within(self, limit: int) -> "KnownPrices":
        """The same prices, now and later, with another limit of bytes."""
        other = KnownPrices(self.costs, self.views, self.cluster, limit, self.backward)
        other._share(self)
        other._tables = self._tables
        return other

    def _share(self, other: "KnownPrices") -> None:
        """Takes the prices of another, now and later."""
        self._priced, self._ideal, self._of_points = other._priced, other._ideal, other._of_points
        self._transfers, self._held, self._near = other._transfers, other._held, other._near

    def has(self, count: int) -> bool:
        """Whether layers can be priced in that many microbatches."""
        return self.costs.has(count)

    def origin(self, layer: int) -> Origin:
        """The first op of a layer."""
        return self.costs.layers.origins[layer]

    def in_flight(self, schedule: str, behind: int, count: int) -> int:
        """Microbatches that a stage with `behind` later stages holds at once."""
        if not self.backward:
            return count
        if (key := (schedule, behind, count)) not in self._held:
            stages = 1 << behind.bit_length()  # this schedule answers for many values of `behind`
            held = schedule_named(schedule).in_flight(Work(stages, count))
            self._held[key] = held[stages - 1 - behind]
        return self._held[key]

    # ---- prices ----

    def is_open(self, size: int) -> bool:
        """Whether layers are priced on any view of a size."""
        return bool(self.open_views(size))

    def views_of(self, size: int) -> Sequence[Mesh]:
        """All views of a size, those in doubt last."""
        return self.views.of(size)

    def known_kinds(self, view: Mesh, point: int) -> Collection[int] | None:
        """The kinds of layers that are priced on a view at a point; none if all are derived from
        another point; None if there is no price."""
        return self._priced.get((view, point))

    def in_one_alone(self, view: Mesh, point: int) -> int | None:
        """The point behind the prices of all devices at a point, if layers are priced there in one
        microbatch only."""
        if len(view.device_ids) < self.cluster.num_devices:
            return None
        priced, base = self._priced.get((view, point)), derived_from(self.points, point)
        if priced == {} and base is not None:
            return self.in_one_alone(view, base)
        return point if priced and all(counts == [1] for counts in priced.values()) else None

    def of_one(self, view: Mesh, count: int, point: int) -> Ranges:
        """All ranges of layers at one point, whose step takes as long as in one microbatch."""
        costs = [_cut(cost, count) for cost in self.all_costs(view, 1, point)]
        return Ranges.of(costs, count, self.costs.layers.shared)

    def open_views(self, size: int) -> list[Mesh]:
        """The views of a size on which layers are priced."""
        return [view for view in self.views_of(size) if (view, 0) in self._priced]

    def open_sizes(self) -> tuple[int, ...]:
        """The sizes with known prices."""
        return tuple(filter(self.is_open, self.sizes))

    def _rested_on(self, point: int) -> set[int]:
        """The points from which a stage at one point takes its layers."""
        return {point - 1, point} if self.points[point].price > 0.0 else {point}

    def _is_sure(self, view: Mesh, count: int, point: int) -> bool:
        """Whether all layers are priced in that many microbatches, or interpolated between two
        numbers of which one is near: costs are almost linear in the size of a microbatch."""
        if self.costs.is_known(view, count, point):
            return True
        priced, size = self._priced.get((view, point), {}), len(view.device_ids)
        own = shares(self.costs.rows, count, size)
        known = [
            [n for n in priced.get(kind, []) if shares(self.costs.rows, n, size) == own]
            for kind in self.costs.layers.kinds
        ]
        return all(
            min(counts, default=count) < count < max(counts, default=count)
            and min(max(n / count, count / n) for n in counts) <= NEAR
            for counts in known
        )

    def is_settled(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Whether the best view of a stage depends on no price in other microbatches."""
        view, point = self._choice(size, count, held, first, last)
        return all(self._is_sure(view, count, each) for each in self._rested_on(point))

    def cost(self, view: Mesh, count: int, point: int, sample: int) -> LayerCost:
        """The cost of a layer: exact, inter- or extrapolated. If none is known, that on another
        view of as many devices, or of an even split."""
        counts = self._priced[view, point].get(sample)
        base = derived_from(self.points, point)
        if not counts and base is not None:
            more = self.costs.more(self.near(count, 1), self.points[point].recompute, sample)
            return more.of(self.cost(view, count, base, sample))
        if not counts:
            for other in self.open_views(len(view.device_ids)):
                if self._priced.get((other, point), {}).get(sample):
                    return self.cost(other, count, point, sample)
            even_s = self.even_s(len(view.device_ids), count, sample)
            arguments = (0.0,) * len(self.costs.layers.arguments[sample])
            return LayerCost(even_s, 0.0, 0.0, 0.0, LayerMemory(0.0, 0.0, 0.0, 0.0), arguments)
        alike = most_alike(counts, count, self.costs.rows, len(view.device_ids))
        return interpolated(lambda n: self.costs.cost(view, n, point, sample), alike, count)

    def least_s(self, size: int, count: int) -> float:
        """A lower bound on the seconds of a microbatch through all layers on that many devices,
        each on its fastest view."""
        known = self.open_views(size)
        return sum(
            often * min([self.at_least_s(view, count, kind) for view in known], default=even_s)
            for kind, often in self.often
            for even_s in [self.even_s(size, count, kind)]
        )

    def even_s(self, size: int, count: int, kind: int) -> float:
        """Seconds of a layer and microbatch if split evenly, with nothing sent."""
        known, cost = self._ideal[kind]
        return cost.ideal_in(known, count) / count / size

    def at_least_s(self, view: Mesh, count: int, kind: int) -> float:
        """A lower bound on the seconds of a layer and microbatch on an open view."""
        if not self._priced[view, 0].get(kind):
            return self.even_s(len(view.device_ids), count, kind)
        if count > 1 and self.in_one_alone(view, 0) is not None:
            cost = _cut(self.cost(view, 1, 0, kind), count)
        else:
            cost = self.cost(view, count, 0, kind)
        return cost.forward_s + cost.backward_s + cost.once_s / count

    def all_s(self, view: Mesh, count: int) -> float:
        """Seconds of a microbatch through all layers, if memory is no limit."""
        costs = self.all_costs(view, count, 0)
        return sum(c.forward_s + c.backward_s + c.once_s / count for c in costs)

    def all_costs(self, view: Mesh, count: int, point: int) -> list[LayerCost]:
        kinds = {kind: self.cost(view, count, point, kind) for kind in self.costs.layers.kinds}
        return [kinds[sample] for sample in self.kinds]

    # ---- stages ----

    def stage_s(self, size: int, count: int, held: int, only: Mesh | None = None) -> Floats:
        """[first, last layer]: seconds of a microbatch, forward and backward, plus its share of
        per-step work; inf if a stage with `held` microbatches in flight does not fit.

        Args:
            only: the view; None: each stage has its best.
        """
        return self._table(size, count, held, only)[0]

    def view(
        self, size: int, count: int, held: int, first: int, last: int, only: Mesh | None = None
    ) -> Mesh:
        """The view on which a stage is fastest."""
        return self._choice(size, count, held, first, last, only)[0]

    def recompute(
        self, size: int, count: int, held: int, first: int, last: int, only: Mesh | None = None
    ) -> Recompute:
        """What the fastest way to run a stage computes again."""
        return self.points[self._choice(size, count, held, first, last, only)[1]].recompute

    def peak_bytes(self, size: int, count: int, held: int, first: int, last: int) -> float:
        """What the fastest way to run a stage on any view holds, up to the limit."""
        view, point = self._choice(size, count, held, first, last)
        peaks = self.at_point(view, count, point).peaks(held)
        return min(float(peaks[first, last]), self.limit)

    def is_fastest(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Whether more memory would make a stage no faster."""
        best_s = math.inf
        for view in self.open_views(size):
            own_s = float(self.at_point(view, count, 0).seconds[first, last])
            best_s = own_s if self.in_doubt(view) * own_s < best_s else best_s
        return float(self.stage_s(size, count, held)[first, last]) <= best_s * (1.0 + 1e-9)

    def in_doubt(self, view: Mesh) -> float:
        """The factor by which a view must be faster than others to count."""
        return CLEARLY if view in self.views.doubtful else 1.0

    def _choice(
        self, size: int, count: int, held: int, first: int, last: int, only: Mesh | None = None
    ) -> tuple[Mesh, int]:
        number = int(self._table(size, count, held, only)[1][first, last])
        view, point = divmod(number, len(self.points))
        return self.views_of(size)[view], point

    def _table(self, size: int, count: int, held: int, only: Mesh | None) -> tuple[Floats, Ints]:
        key = size, count, held, self.limit, only
        if key not in self._tables:
            best = np.full((self.num_layers, self.num_layers), np.inf)
            which = np.zeros(best.shape, np.int64)
            for number, view in enumerate(self.views_of(size)):
                if only not in (None, view):
                    continue
                clearly = self.in_doubt(view)
                looser: tuple[Recompute, Floats, Floats] | None = None
                for point, (_, again) in enumerate(self.points):
                    if (view, point) not in self._priced:
                        continue
                    ranges = self.at_point(view, count, point)
                    all_s, peak = ranges.seconds, ranges.peaks(held)
                    seconds = np.where(peak <= self.limit, all_s, np.inf)
                    if looser is not None and looser[0] == again:
                        seconds = np.minimum(
                            seconds, mixed_s(self.limit, *looser[1:], seconds, peak)
                        )
                    looser = again, all_s, peak
                    seconds = np.minimum(seconds, self._otherwise_s(ranges, held))
                    better = clearly * seconds < best
                    best = np.where(better, seconds, best)
                    which[better] = number * len(self.points) + point
            best[np.tril_indices(self.num_layers, -1)] = np.inf
            self._tables[key] = best, which
        return self._tables[key]

    def _otherwise_s(self, ranges: Ranges, held: int) -> Floats:
        """Seconds of a microbatch of all ranges of layers that are run in another way than on the
        memory of their devices; inf if there is none."""
        return np.full_like(ranges.seconds, np.inf)

    def at_point(self, view: Mesh, count: int, point: int) -> Ranges:
        """All ranges of layers at one point."""
        key = view, count, point
        if key not in self._of_points:
            costs = self.all_costs(view, count, point)
            self._of_points[key] = Ranges.of(costs, count, self.costs.layers.shared)
        return self._of_points[key]

    def crossing(self, size: int, after: int, crosses: bool, count: int) -> Crossing:
        """`Transfers.crossing`, by the nearest number of microbatches."""
        return self._transfers.crossing(size, after, crosses, count, self.near(count, 1))

    def crossing_between(
        self, count: int, model: CostModel, source: Mesh, target: Mesh
    ) -> Crossing:
        """`crossing` between two meshes of any cluster."""
        return self._transfers.between(count, model, source, target, self.near(count, 1))

    def like_several(self, count: int, size: int) -> int:
        """The nearest number of microbatches above one for which stage functions exist, if it gives
        rows to as many devices; otherwise `count`."""
        near, rows = self.near(count, size, above=1), self.costs.rows
        return near if shares(rows, near, size) == shares(rows, count, size) else count

    def near(self, count: int, size: int, above: int = 0) -> int:
        """The nearest number of microbatches for which stage functions exist; if possible one that
        says most about the cost on that many devices; only numbers above `above`."""
        key = count, size, above
        if key not in self._near:
            kinds = self._priced.values()
            found = {n for of_kind in kinds for counts in of_kind.values() for n in counts}
            known = sorted(n for n in found if n > above)
            alike = most_alike(known, count, self.costs.rows, size)
            self._near[key] = min(
                alike, key=lambda known: abs(math.log(known / count)), default=count
            )
        return self._near[key]


def _cut(cost: LayerCost, count: int) -> LayerCost:
    """The cost in `count` microbatches that together take as long as one, known to take `cost`."""
    return replace(cost, least_s=(0.0, 0.0), dispatches=((), ())).scaled(1 / count)
