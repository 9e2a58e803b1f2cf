"""Groups of devices along the axes of a mesh."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardc.plan.layout import Mesh
from shardc.rewrite.local.collectives import replica_groups


def test_groups_of_a_small_mesh() -> None:
    mesh = Mesh((("x", 2), ("y", 2)), (0, 1, 2, 3))
    assert replica_groups(mesh, ("x",)).tolist() == [[0, 2], [1, 3]]
    assert replica_groups(mesh, ("y",)).tolist() == [[0, 1], [2, 3]]
    assert replica_groups(mesh, ("x", "y")).tolist() == [[0, 1, 2, 3]]
    assert replica_groups(mesh, ("y", "x")).tolist() == [[0, 2, 1, 3]]


@given(st.data())
def test_each_device_is_in_one_group_with_those_that_differ_along_the_axes(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    names = [f"axis{i}" for i in range(len(sizes))]
    count = int(np.prod(sizes))
    mesh = Mesh(tuple(zip(names, sizes, strict=True)), tuple(range(count)))
    axes = data.draw(st.permutations(names).map(lambda p: p[: max(1, len(p) // 2)]))
    groups = replica_groups(mesh, axes)
    assert sorted(groups.flatten().tolist()) == list(range(count))
    places = list(itertools.product(*map(range, sizes)))
    for group in groups:
        fixed = {
            tuple(places[d][i] for i, name in enumerate(names) if name not in axes) for d in group
        }
        assert len(fixed) == 1
        along = [tuple(places[d][names.index(axis)] for axis in axes) for d in group]
        assert along == sorted(along)  # major to minor
