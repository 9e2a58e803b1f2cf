"""Prices layers for the costs of stages that depend on unknown prices."""

import math
from collections.abc import Iterable, Sequence

from shardc.cluster import Cluster
from shardc.plan.layout import Mesh
from shardc.planner.prices.known_prices import CLEARLY, KnownPrices
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.planner.prices.points import derived_from, free_point
from shardc.planner.prices.views import Views

COVERED = 0.75  # share of the layers whose kinds are priced to decide whether a view deserves more


class StagePrices(KnownPrices):
    """Costs of stages that can price more layers.

    Attributes:
        round: changes with every new price.
    """

    def __init__(
        self, costs: LayerCosts, views: Views, cluster: Cluster, limit: int, backward: bool
    ) -> None:
        super().__init__(costs, views, cluster, limit, backward)
        self.round = 0
        covered = [sum(n for _, n in self.often[:k]) for k in range(len(self.often))]
        self._main = [
            kind
            for (kind, _), c in zip(self.often, covered, strict=True)
            if c < COVERED * self.num_layers
        ]

    @property
    def work(self) -> int:
        return self.costs.work

    def open_size(self, size: int, count: int) -> None:
        """Prices the layers on the views of a size that are not in doubt."""
        for view in self.views.first(size):
            self.ask(view, count, 0, self._main)

    def open_doubtful(self, size: int, count: int) -> bool:
        """Also prices the layers on the views of a size that are in doubt; whether there were any.
        A view is left out as long as one with the same axes in another order is no faster."""
        new = False
        for view in self.views_of(size):
            known = self.open_views(size)
            alike = [other for other in known if self.views.are_alike(view, other)]
            wanted = not alike or any(self._leads(other, known, count) for other in alike)
            if view not in known and wanted:
                self.ask(view, count, 0, self._main)
                new = True
        return new

    def _leads(self, view: Mesh, known: Sequence[Mesh], count: int) -> bool:
        """Whether layers are clearly faster on a view than on those of other axes."""
        others = [other for other in known if not self.views.are_alike(view, other)]
        others_s = [self.all_s(other, count) for other in others]
        return CLEARLY * self.all_s(view, count) < min(others_s, default=math.inf)

    def settle(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Prices what the best view of a stage depends on; whether anything was unknown."""
        view, point = self._choice(size, count, held, first, last)
        new = False
        for each in self._rested_on(point):
            if not self._is_sure(view, count, each):
                self.ask(view, count, each)
                new = True
        return new

    def ask(self, view: Mesh, count: int, point: int, kinds: Iterable[int] = ()) -> None:
        """Prices layers: those of `kinds`, or all."""
        for kind in kinds if self._ideal and kinds else self.costs.layers.kinds:
            cost = self.costs.cost(view, count, point, kind)
            self._ideal.setdefault(kind, (count, cost))
            for each in {point, free_point(self.points, point)}:  # which its price is relative to
                counts = self._priced.setdefault((view, each), {}).setdefault(kind, [])
                if count not in counts:
                    counts.append(count)
        for other in range(len(self.points)):
            if derived_from(self.points, other) in (point, free_point(self.points, point)):
                self._priced.setdefault((view, other), {})
        self.round += 1
        for of_other_prices in (self._tables, self._of_points, self._near):
            of_other_prices.clear()
