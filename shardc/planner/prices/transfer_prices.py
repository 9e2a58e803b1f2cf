"""The time of transfers from one stage to the next."""

import numpy as np

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.plan.layout import Mesh
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.solver.problem.problem import Floats


def takes_turns(size: int, after: int, crosses: bool, per_node: int) -> bool:
    """Whether what crosses between two of at least three stages takes turns with what crosses
    between one of them and its other neighbour: activations come into a stage on the way on which
    gradients do, if both come from other nodes, or neither does.

    Args:
        size, after: devices of the stage before and of the one behind.
        crosses: they are on different nodes.
    """
    return max(size, after) >= per_node if crosses else size + after != per_node


class Transfers:
    """Times to send what crosses after each layer, and its gradient back."""

    def __init__(self, costs: LayerCosts, cluster: Cluster) -> None:
        self._costs, self._cluster = costs, cluster
        self._known: dict[tuple[int, int, bool, int, int], Floats] = {}

    def send_s(self, size: int, after: int, crosses: bool, count: int, near: int) -> Floats:
        """Per last layer of a stage, the seconds to send a microbatch to the next stage, on
        `after` devices, and its gradient back.

        Args:
            crosses: the stage ends where a node ends.
            near: a number of microbatches for which stage functions exist.
        """
        key = size, after, crosses, count, near
        if key not in self._known:
            per_node = self._cluster.num_devices_per_node
            start = 0 if not crosses or size >= per_node else per_node - size
            middle = start + size
            self._known[key] = np.zeros(len(self._costs.layers.behind))  # without room for both
            if middle + after <= self._cluster.num_devices:
                a = mesh_of((size,), range(start, middle))
                b = mesh_of((after,), range(middle, middle + after))
                self._known[key] = self.between_s(count, CostModel(self._cluster), a, b, near)
        return self._known[key]

    def between_s(
        self, count: int, model: CostModel, source: Mesh, target: Mesh, near: int
    ) -> Floats:
        """`send_s` between two meshes of any cluster."""
        each = self._costs.sends(near).seconds(model, source, target, near / count)
        return np.array([each[sample] for sample in self._costs.layers.behind])
