"""Submeshes, their placement, and the meshes over them."""

import itertools

import pytest

from shardc.cluster import Cluster
from shardc.cost.submeshes import factorizations, mesh_of, mesh_views, place, submesh_sizes
from shardc.errors import ClusterError

ALPA = Cluster.load("alpa")


def test_sizes_are_powers_of_two_in_a_node_and_whole_nodes():
    assert submesh_sizes(ALPA) == (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
    assert submesh_sizes(ALPA.with_devices(2)) == (1, 2)
    assert submesh_sizes(ALPA.with_devices(6)) == (1, 2, 4, 6)


def test_every_multiset_that_fills_the_cluster_can_be_placed():
    """Alpa's theorem 1, on two nodes of 8 devices."""
    cluster = ALPA.with_devices(16)
    sizes = submesh_sizes(cluster)
    for count in range(1, 7):
        for stages in itertools.product(sizes, repeat=count):
            if sum(stages) == 16:
                first = place(cluster, stages)
                used = [d for f, n in zip(first, stages, strict=True) for d in range(f, f + n)]
                assert sorted(used) == list(range(16))
                for f, n in zip(first, stages, strict=True):
                    assert n % 8 == 0 or f // 8 == (f + n - 1) // 8


def test_equal_stages_keep_their_order():
    assert place(ALPA, [8] * 8) == tuple(range(0, 64, 8))
    assert place(ALPA.with_devices(8), [2, 2, 4]) == (0, 2, 4)


def test_stages_that_do_not_fit_are_refused():
    for sizes in ([8, 16], [16, 0]):
        with pytest.raises(ClusterError, match="do not fit") as caught:
            place(ALPA.with_devices(16), sizes)
        assert caught.value.code == "SHARDC-101"
    with pytest.raises(ClusterError, match="spanning nodes") as caught:
        place(ALPA.with_devices(16), [12, 4])
    assert caught.value.code == "SHARDC-101"


def test_factorizations():
    assert factorizations(1, 3) == [()]
    assert factorizations(6, 2) == [(6,), (2, 3), (3, 2)]
    assert factorizations(8, 3) == [(8,), (2, 4), (2, 2, 2), (4, 2)]


def test_views_are_over_contiguous_devices():
    views = mesh_views(ALPA, 8, 8)
    assert [view.axes for view in views] == [
        (("x", 8),),
        (("x", 2), ("y", 4)),
        (("x", 4), ("y", 2)),
    ]
    assert all(view.device_ids == tuple(range(8, 16)) for view in views)
    assert [view.axes for view in mesh_views(ALPA, 3, 1)] == [(("x", 1),)]


@pytest.mark.parametrize(("first", "count"), [(0, 65), (60, 8), (-1, 2), (0, 0)])
def test_views_outside_the_cluster_are_refused(first, count):
    with pytest.raises(ClusterError) as caught:
        mesh_views(ALPA, first, count)
    assert caught.value.code == "SHARDC-101"


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 2, 1, 1)])
def test_shape_that_has_other_devices_is_refused(shape):
    with pytest.raises(ClusterError, match="cannot hold 8 devices"):
        mesh_of(shape, range(8))
