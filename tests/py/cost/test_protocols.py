"""Collectives by the fastest of several protocols: by hand, as properties, and as NCCL took."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.cluster import Cluster, Device, Level, Protocol
from shardc.cost.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from shardc.cost.links import Link, axis_links
from shardc.cost.protocols import Crossed, gather_lines, reduce_lines
from shardc.cost.submeshes import mesh_of

DEVICE = Device("d", 1 << 30, {"default": 1e12}, 1e11)
RING = Protocol("ring", "plain", latency_s=2.0, start_s=5.0)
QUICK = Protocol("ring", "quick", latency_s=1.0, start_s=1.0, efficiency=0.25)
TREE = Protocol("tree", "plain", latency_s=3.0, start_s=4.0, efficiency=0.5)
SWITCH = Protocol("switch", "plain", latency_s=6.0, efficiency=0.75, least_group=4)


def link(n: int, *protocols: Protocol, across: tuple[Protocol, ...] | None = None) -> Link:
    """Of an axis over n devices, in nodes of 4 with 100 bytes/s, with 10 between nodes."""
    node = Level("node", 4, 100.0, 9.0, protocols=protocols)
    network = Level("network", 4, 10.0, 9.0, protocols=protocols if across is None else across)
    cluster = Cluster("c", DEVICE, (node, network)).with_devices(n)
    return axis_links(cluster, mesh_of((n,), range(n)))["x"]


def test_a_ring_takes_its_steps_and_its_share_of_the_bytes():
    assert all_gather_s(4, link(4, RING), 80) == pytest.approx(5 + 3 * 2 + 3 / 4 * 80 / 100)
    assert all_reduce_s(4, link(4, RING), 80) == pytest.approx(5 + 6 * 2 + 6 / 4 * 80 / 100)
    assert reduce_scatter_s(4, link(4, RING), 80) == all_gather_s(4, link(4, RING), 80)


def test_the_fastest_protocol_for_the_size_counts():
    both = link(4, RING, QUICK)
    assert all_reduce_s(4, both, 8) == pytest.approx(1 + 6 * 1 + 6 / 4 * 8 / 25)
    assert all_reduce_s(4, both, 8000) == pytest.approx(5 + 6 * 2 + 6 / 4 * 8000 / 100)


def test_a_tree_is_a_chain_in_a_node_and_binary_between_four():
    # 3 steps inside a node and 2 between nodes, up and down; a ring of 16 leaves with 4 x 10.
    found = all_reduce_s(16, link(16, TREE), 80)
    assert found == pytest.approx(4 + 2 * (3 + 2) * 3 + 2 * 80 / (40 * 0.5))


def test_a_switch_adds_up_in_one_pass_for_groups_that_are_large_enough():
    assert all_reduce_s(4, link(4, SWITCH, RING), 8000) == pytest.approx(6 + 8000 / 75)
    two = link(2, SWITCH, RING)
    assert all_reduce_s(2, two, 8000) == pytest.approx(5 + 2 * 2 + 8000 / 100)


def test_what_one_level_lacks_does_not_cross_it():
    both = link(8, RING, SWITCH, across=(RING,))
    assert both.reduces == link(8, RING).reduces
    none = link(8, SWITCH, across=())
    assert (none.gathers, none.reduces) == ((), ())
    assert all_reduce_s(8, none, 80) == pytest.approx(14 * (9.0 + 80 / 8 / 40))


def test_a_limit_holds_whatever_the_link_is():
    limited = Protocol("ring", "plain", latency_s=2.0, start_s=5.0, most_bytes_per_s=4.0)
    assert all_gather_s(4, link(4, limited), 80) == pytest.approx(11 + 3 / 4 * 80 / 4)


shares = st.floats(0.05, 1.0)
times = st.floats(0.0, 1e-4)
protocols = st.builds(
    Protocol, st.sampled_from(["ring", "tree", "switch"]), st.just("p"), times, times, shares
)


@st.composite
def groups(draw) -> tuple[int, list[Crossed]]:
    n = draw(st.sampled_from([2, 8, 64]))
    some = draw(st.lists(protocols, min_size=1, max_size=4, unique_by=lambda p: p.algorithm))
    rates = draw(st.lists(st.sampled_from([1e8, 1e9, 1e10]), min_size=1, max_size=2))
    level = [Level(str(i), 2, rate, 1e-6, protocols=tuple(some)) for i, rate in enumerate(rates)]
    return n, [Crossed(each, each.bandwidth_bytes_per_s, n, 3) for each in level]


@given(groups(), st.floats(1, 1e10), st.floats(1, 1e10))
def test_more_bytes_never_take_less_and_nothing_beats_the_slowest_link(group, one, other):
    n, crossed = group
    slowest = min(each.ring_bytes_per_s for each in crossed)
    for lines, share in (
        (reduce_lines(n, crossed), 1.0),
        (gather_lines(n, crossed), (n - 1) / n),
    ):
        few, many = (
            min((line.fixed_s + size * line.byte_s for line in lines), default=math.inf)
            for size in sorted((one, other))
        )
        assert few <= many
        assert few >= share * min(one, other) / slowest * (1 - 1e-9)


@pytest.mark.slow
@given(groups(), st.floats(0, 1e10))
def test_lines_that_are_left_out_never_win(group, num_bytes):
    n, crossed = group
    alone = [
        lines[0]
        for key in {each.key for each in crossed[0].level.protocols}
        if (lines := reduce_lines(n, [_only(each, key) for each in crossed]))
    ]
    best = min(line.fixed_s + num_bytes * line.byte_s for line in alone)
    kept = reduce_lines(n, crossed)
    found = min(line.fixed_s + num_bytes * line.byte_s for line in kept)
    assert found == pytest.approx(best, rel=1e-12)


def _only(crossed: Crossed, key: tuple[str, str]) -> Crossed:
    level = crossed.level
    kept = tuple(each for each in level.protocols if each.key == key)
    own = Level(level.name, 2, level.bandwidth_bytes_per_s, 1e-6, protocols=kept)
    return crossed._replace(level=own)


@pytest.mark.parametrize("size", [64, 512, 1024])
def test_a_few_bytes_over_many_h100s_take_a_tree(size):
    cluster = Cluster.load(f"h100-{size}")
    own = axis_links(cluster, mesh_of((size,), range(size)))["x"]
    found = all_reduce_s(size, own, 4)
    network = cluster.levels[1]
    ring_s = next(p.latency_s for p in network.protocols if p.key == ("ring", "LL"))
    nodes = size // 8
    assert own.launch_s < found < 2e-4
    assert found < 2 * nodes * ring_s + own.launch_s or nodes <= 8


# From the curves that vTrain published (MICRO 2024, github.com/VIA-Research/vTrain): devices,
# bytes, microseconds; and of 8 H200s (github.com/stas00/ml-engineering, network/benchmarks).
NCCL = {
    "a100-8": [(2, 1 << 20, 44.21), (4, 1 << 22, 77.32), (8, 1 << 23, 134.3), (8, 1 << 30, 8193.0)],
    "v100-8": [(2, 1 << 21, 116.0), (4, 1 << 24, 324.2), (8, 1 << 22, 150.9), (8, 1 << 28, 3527.4)],
    "h200-8": [(8, 1 << 15, 40.0), (8, 1 << 22, 68.5), (8, 1 << 26, 338.9), (8, 1 << 30, 4053.4)],
}


@pytest.mark.parametrize("name", NCCL)
def test_built_in_clusters_take_as_long_as_nccl_did(name):
    for n, num_bytes, taken_us in NCCL[name]:
        own = axis_links(Cluster.load(name), mesh_of((n,), range(n)))["x"]
        assert 1e6 * all_reduce_s(n, own, num_bytes) == pytest.approx(taken_us, rel=0.2)
