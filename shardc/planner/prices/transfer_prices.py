"""The time of transfers from one stage to the next."""

import numpy as np

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.plan.layout import Mesh
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.planner.prices.sends import Crossing


class Transfers:
    """Times to send what crosses after each layer, and its gradient back."""

    def __init__(self, costs: LayerCosts, cluster: Cluster) -> None:
        self._costs, self._cluster = costs, cluster
        self._known: dict[tuple[int, int, bool, int, int], Crossing] = {}

    def crossing(self, size: int, after: int, crosses: bool, count: int, near: int) -> Crossing:
        """Of the last layer of a stage on `size` devices, to the next stage, on `after` devices.

        Args:
            crosses: the stage ends where a node ends.
            near: a number of microbatches for which stage functions exist.
        """
        key = size, after, crosses, count, near
        if key not in self._known:
            per_node = self._cluster.num_devices_per_node
            start = 0 if not crosses or size >= per_node else per_node - size
            middle = start + size
            nothing = np.zeros(len(self._costs.layers.behind))  # without room for both
            self._known[key] = Crossing(nothing, nothing, nothing)
            if middle + after <= self._cluster.num_devices:
                a = mesh_of((size,), range(start, middle))
                b = mesh_of((after,), range(middle, middle + after))
                self._known[key] = self.between(count, CostModel(self._cluster), a, b, near)
        return self._known[key]

    def between(
        self, count: int, model: CostModel, source: Mesh, target: Mesh, near: int
    ) -> Crossing:
        """`crossing` between two meshes of any cluster."""
        each = self._costs.sends(near).seconds(model, source, target, near / count)
        table = np.array([each[sample] for sample in self._costs.layers.behind])
        return Crossing(*table.T)
