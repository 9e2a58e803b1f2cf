"""Pipelines are proposed from the prices of layers that there was time for."""

import numpy as np

from shardc.cluster import Cluster
from shardc.options import PlanOptions
from shardc.planner.layer_costs import LayerTable, propose


def test_a_table_of_large_submeshes_only_gives_few_stages() -> None:
    layers = 8
    prices = {(4,): np.ones(layers)}
    table = LayerTable(
        tuple(range(layers)), prices, prices, np.ones(layers), np.ones(layers), (1,) * (layers - 1)
    )
    cluster = Cluster.load("cpu8")
    found = propose(table, cluster, PlanOptions(), 4, "1f1b", 1 << 40)
    assert [len(proposal.shape.meshes) for proposal in found] == [2]
