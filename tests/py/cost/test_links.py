"""What an axis of a mesh gets from the links of a cluster, counted by hand."""

import msgspec
import pytest

from shardc.cluster import Bridge, Cluster, Device, Island, Level
from shardc.cost.links import axis_links, transfer_link
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.errors import ClusterError
from shardc.plan.layout import Mesh
from shardc.plan.priced_work import Work

DEVICE = Device("d", 1 << 30, {"default": 1e12}, 1e11)
TWO_NODES = Cluster("two", DEVICE, (Level("node", 4, 100.0, 1e-6), Level("network", 2, 2.0, 1e-3)))


def links(*shape: int, first: int = 0):
    count = 1
    for size in shape:
        count *= size
    found = axis_links(TWO_NODES, mesh_of(shape, range(first, first + count)))
    return [(link.bandwidth_bytes_per_s, link.latency_s) for link in found.values()]


def test_axis_inside_a_node_has_the_inner_link():
    assert links(4) == [(100.0, 1e-6)]
    assert links(2, 2, first=4) == [(100.0, 1e-6), (100.0, 1e-6)]


def test_axis_across_nodes_shares_the_way_out_between_its_four_rings():
    assert links(2, 4) == [(2.0, 1e-3), (100.0, 1e-6)]


def test_one_ring_over_both_nodes_has_the_whole_way_out():
    [(bandwidth, latency_s)] = links(8)
    assert bandwidth == 8.0
    assert latency_s == pytest.approx((6 * 1e-6 + 2 * 1e-3) / 8)  # two of its hops leave a node


def test_two_rings_over_both_nodes_have_half_each():
    assert links(4, 2) == [(4.0, pytest.approx((2 * 1e-6 + 2 * 1e-3) / 4)), (100.0, 1e-6)]


def test_all_to_all_over_both_nodes_is_bound_by_what_leaves_a_node():
    link = axis_links(TWO_NODES, mesh_of((8,), range(8)))["x"]
    # Each device keeps 1/8, sends 3/8 inside and 4/8 through its share of 2 bytes/s.
    assert 7 / 8 / link.all_to_all_bandwidth_bytes_per_s == pytest.approx(4 / 8 / 2.0)


def test_axis_of_size_1_costs_nothing():
    assert links(1) == [(float("inf"), 0.0)]


def test_faster_outer_level_is_not_slowed_by_the_inner_one():
    cluster = Cluster("odd", DEVICE, (Level("a", 2, 1.0, 1e-6), Level("b", 2, 50.0, 1e-6)))
    found = axis_links(cluster, mesh_of((2, 2), range(4)))
    assert [link.bandwidth_bytes_per_s for link in found.values()] == [50.0, 1.0]


def test_transfer_between_nodes_uses_all_pairs():
    link = transfer_link(TWO_NODES, mesh_of((4,), range(4)), mesh_of((4,), range(4, 8)))
    assert (link.bandwidth_bytes_per_s, link.latency_s) == (8.0, 1e-3)


def test_transfer_inside_a_node_uses_the_smaller_mesh():
    link = transfer_link(TWO_NODES, mesh_of((1,), [0]), mesh_of((2,), [2, 3]))
    assert (link.bandwidth_bytes_per_s, link.latency_s) == (100.0, 1e-6)


def test_transfer_reaches_its_share_of_the_level_that_it_crosses():
    node, network = TWO_NODES.levels
    levels = (node, msgspec.structs.replace(network, transfer_efficiency=0.5))
    cluster = msgspec.structs.replace(TWO_NODES, levels=levels)
    across = transfer_link(cluster, mesh_of((4,), range(4)), mesh_of((4,), range(4, 8)))
    inside = transfer_link(cluster, mesh_of((1,), [0]), mesh_of((1,), [1]))
    assert (across.bandwidth_bytes_per_s, inside.bandwidth_bytes_per_s) == (4.0, 100.0)


def test_transfer_to_the_same_mesh_is_free():
    mesh = mesh_of((4,), range(4))
    assert transfer_link(TWO_NODES, mesh, mesh).bandwidth_bytes_per_s == float("inf")


@pytest.mark.parametrize("ids", [(0, 9), (0, 0), (0, 1, 2), (-1, 0)])
def test_mesh_that_does_not_fit_is_refused(ids):
    with pytest.raises(ClusterError) as caught:
        axis_links(TWO_NODES, Mesh((("x", 2),), ids))
    assert caught.value.code == "SHARDC-101"


def test_rings_of_several_devices_that_leave_a_node_side_by_side_reach_less():
    network = msgspec.structs.replace(TWO_NODES.levels[1], shared=0.5)
    cluster = msgspec.structs.replace(TWO_NODES, levels=(TWO_NODES.levels[0], network))
    for shape, bandwidth in (((2, 4), 2.0), ((4, 2), 2.0), ((8,), 8.0)):
        found = axis_links(cluster, mesh_of(shape, range(8)))
        assert next(iter(found.values())).bandwidth_bytes_per_s == bandwidth


SLOW = Device("slow", 1 << 28, {"default": 1e11}, 1e10)
ISLANDS = Cluster.of_islands(
    "islands",
    [
        Island("a", SLOW, (Level("node", 2, 10.0, 1e-5),)),
        Island("b", DEVICE, TWO_NODES.levels),
        Island("c", DEVICE, (Level("node", 2, 10.0, 1e-5),)),
    ],
    [Bridge(("a", "b"), 0.5, 1e-2), Bridge(("b", "c"), 0.25, 1e-2)],
)


def test_mesh_on_an_island_has_the_links_of_the_island():
    found = axis_links(ISLANDS, mesh_of((2, 4), range(2, 10)))
    assert found == axis_links(TWO_NODES, mesh_of((2, 4), range(8)))
    here, there = (mesh_of((4,), range(d, d + 4)) for d in (2, 6))
    own = [mesh_of((4,), range(d, d + 4)) for d in (0, 4)]
    assert transfer_link(ISLANDS, here, there) == transfer_link(TWO_NODES, *own)


def test_mesh_over_islands_has_the_least_links():
    [link] = axis_links(ISLANDS, mesh_of((4,), range(4))).values()
    # One ring leaves each of two units of two devices, over the narrowest link of all.
    assert link.bandwidth_bytes_per_s == 2 * 0.25


def test_transfer_between_islands_takes_the_bridges():
    a, b, c = (mesh_of((2,), range(d, d + 2)) for d in (0, 2, 10))
    direct, over_b = transfer_link(ISLANDS, a, b), transfer_link(ISLANDS, a, c)
    assert (direct.bandwidth_bytes_per_s, direct.latency_s) == (2 * 0.5, 1e-2)
    assert (over_b.bandwidth_bytes_per_s, over_b.latency_s) == (2 * 0.25, 2e-2)


def test_ops_run_at_the_pace_of_their_island():
    work = Work("float32", 10**12, 0)
    on = [CostModel(ISLANDS).on(mesh_of((2,), (d, d + 1))).op_s(work) for d in (0, 2, 1)]
    assert on == [10.0, 1.0, 10.0]
