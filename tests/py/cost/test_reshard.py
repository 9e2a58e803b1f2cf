"""The cheapest reshard sequences: against brute force, and run on simulated devices."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cost.links import Link
from shardc.cost.protocols import Line
from shardc.cost.reshard import is_valid, reshard, reshard_steps
from shardc.cost.reshard_moves import Moves
from shardc.errors import PlanError
from shardc.plan.layout import Mesh, TensorSharding

FAST = Link(1e9, 1e-6, 1e9)
SLOW = Link(1e7, 1e-5, 1e7)
MESH_1D = Mesh((("x", 4),), tuple(range(4)))
MESH_2D = Mesh((("x", 2), ("y", 2)), tuple(range(4)))
MESH_3D = Mesh((("x", 2), ("y", 3), ("z", 2)), tuple(range(12)))
LINKS = {"x": SLOW, "y": FAST, "z": FAST}


def sharding(*dims: str, unreduced: str = "") -> TensorSharding:
    """sharding("xy", "") is dim 0 over x and y, dim 1 whole."""
    return TensorSharding(tuple(tuple(dim) for dim in dims), tuple(unreduced))


@functools.cache
def all_shardings(mesh: Mesh, shape: tuple[int, ...]) -> list[TensorSharding]:
    axes = [axis for axis, _ in mesh.axes]
    rank = len(shape)
    found = set()
    for order in itertools.permutations(axes):
        # Each axis goes to a dim, to nothing (rank), or is unreduced (rank + 1).
        for homes in itertools.product(range(rank + 2), repeat=len(axes)):
            dims = tuple(
                tuple(a for a, home in zip(order, homes, strict=True) if home == dim)
                for dim in range(rank)
            )
            unreduced = sorted(a for a, home in zip(order, homes, strict=True) if home == rank + 1)
            found.add(TensorSharding(dims, tuple(unreduced)))
    return sorted((s for s in found if is_valid(s, mesh, shape)), key=str)


@st.composite
def problems(draw):
    mesh = draw(st.sampled_from([MESH_1D, MESH_2D, MESH_3D]))
    shape = draw(st.sampled_from([(), (12,), (24, 8), (12, 6), (5, 12), (12, 12, 4)]))
    shardings = all_shardings(mesh, shape)
    source = draw(st.sampled_from(shardings))
    target = draw(st.sampled_from(shardings))
    bandwidth = st.sampled_from([1e6, 1e8, 1e9])
    latency = st.sampled_from([0.0, 1e-5])
    lines = st.sampled_from([(), (Line(1e-6, 4e-9), Line(2e-5, 1e-9))])
    links = {
        axis: Link(
            draw(bandwidth), draw(latency), draw(bandwidth), draw(latency), draw(lines), draw(lines)
        )
        for axis, _ in mesh.axes
    }
    return mesh, shape, source, target, links


# --- against brute force -----------------------------------------------------------------------


def brute_force_s(mesh, shape, source, target, links) -> float:
    """Bellman-Ford over every sharding."""
    moves = Moves(dict(mesh.axes), shape, 4 * math.prod(shape), 4 * math.prod(shape), links)
    states = all_shardings(mesh, shape)
    ways = [(s, move) for s in states for move in moves.of(s)]
    best = dict.fromkeys(states, math.inf)
    best[source] = 0.0
    changed = True
    while changed:
        changed = False
        for state, move in ways:
            reached = best[state] + move.seconds
            if reached < best[move.step.result]:
                best[move.step.result] = reached
                changed = True
    return best[target]


@settings(max_examples=60)
@given(problems())
def test_seconds_equal_brute_force(problem):
    mesh, shape, source, target, links = problem
    expected = brute_force_s(mesh, shape, source, target, links)
    found = reshard(source, target, mesh, shape, 4, links).seconds
    assert found == expected or abs(found - expected) < 1e-8


@settings(max_examples=100)
@given(problems())
def test_bytes_and_seconds_are_finite_exactly_where_there_are_steps(problem):
    mesh, shape, source, target, links = problem
    possible = set(target.unreduced) <= set(source.unreduced)
    assert math.isfinite(reshard(source, target, mesh, shape, 4, links).seconds) == possible
    assert math.isfinite(reshard(source, target, mesh, shape, 4, links).num_bytes) == possible


# --- run on simulated devices ------------------------------------------------------------------


class Devices:
    """Each device's shard of one value, and the collectives between them, in NumPy."""

    def __init__(self, mesh: Mesh, shape: tuple[int, ...], seed: int) -> None:
        self.mesh = mesh
        self.axes = [axis for axis, _ in mesh.axes]
        self.coords = list(np.ndindex(*mesh.shape))
        self.shape = shape
        self.random = np.random.default_rng(seed)

    def along(self, coord, axes):
        return tuple(coord[self.axes.index(axis)] for axis in axes)

    def linear(self, coord, axes) -> int:
        index = 0
        for axis in axes:
            index = index * self.mesh.size(axis) + coord[self.axes.index(axis)]
        return index

    def part(self, value, coord, dims):
        """The part of a whole array that the device at `coord` holds."""
        for dim, axes in enumerate(dims):
            count = self.mesh.num_shards(axes)
            value = np.split(value, count, axis=dim)[self.linear(coord, axes)]
        return value

    def place(self, source: TensorSharding) -> None:
        sizes = [self.mesh.size(axis) for axis in source.unreduced]
        parts = self.random.integers(-99, 99, (*sizes, *self.shape))
        self.whole = parts.sum(axis=tuple(range(len(sizes))))
        self.shards = {
            c: self.part(parts[self.along(c, source.unreduced)], c, source.dims)
            for c in self.coords
        }

    def group(self, coord, axes):
        """The devices that differ from `coord` only along `axes`, row-major over `axes`."""
        others = [a for a in self.axes if a not in axes]
        same = [c for c in self.coords if self.along(c, others) == self.along(coord, others)]
        return sorted(same, key=lambda c: self.linear(c, axes))

    def run(self, step) -> None:
        before = self.shards
        self.shards = {c: self.run_on(step, c, before) for c in self.coords}

    def run_on(self, step, coord, before):
        group = self.group(coord, step.axes)
        index, count = group.index(coord), len(group)
        if step.kind == "all_reduce":
            return sum(before[c] for c in group)
        if step.kind == "reduce_scatter":
            return np.split(sum(before[c] for c in group), count, axis=step.dim)[index]
        if step.kind == "all_gather":
            return np.concatenate([before[c] for c in group], axis=step.dim)
        if step.kind == "all_slice":
            return np.split(before[coord], count, axis=step.dim)[index]
        assert step.kind == "all_to_all"
        pieces = [np.split(before[c], count, axis=step.dst_dim)[index] for c in group]
        return np.concatenate(pieces, axis=step.src_dim)

    def check(self, target: TensorSharding) -> None:
        reduced: dict = {}
        for c in self.coords:
            rest = tuple(a for a in self.axes if a not in target.unreduced)
            reduced.setdefault(self.along(c, rest), []).append(c)
        for group in reduced.values():
            total = sum(self.shards[c] for c in group)
            np.testing.assert_array_equal(total, self.part(self.whole, group[0], target.dims))


@pytest.mark.slow
@settings(max_examples=300)
@given(problems(), st.integers(0, 3))
def test_steps_turn_the_shards_of_source_into_those_of_target(problem, seed):
    mesh, shape, source, target, links = problem
    if not set(target.unreduced) <= set(source.unreduced):
        return
    devices = Devices(mesh, shape, seed)
    devices.place(source)
    steps = reshard_steps(source, target, mesh, shape, 4, links)
    for step in steps:
        devices.run(step)
    devices.check(target)
    assert [step.result for step in steps][-1:] in ([], [target])


# --- single cases ------------------------------------------------------------------------------


def kinds(source, target, mesh=MESH_2D, shape=(8, 8), links=LINKS):
    steps = reshard_steps(source, target, mesh, shape, 4, links)
    return [(step.kind, step.axes) for step in steps]


def test_equal_shardings_need_no_step():
    assert kinds(sharding("x", "y"), sharding("x", "y")) == []


def test_slicing_is_free():
    assert kinds(sharding("", ""), sharding("xy", "")) == [("all_slice", ("x", "y"))]
    assert reshard(sharding("", ""), sharding("x", "y"), MESH_2D, (8, 8), 4, LINKS).seconds == 0


def test_axis_that_moves_to_another_dim_is_all_to_all():
    assert kinds(sharding("x", ""), sharding("", "x")) == [("all_to_all", ("x",))]


def test_partial_sum_to_split_is_reduce_scatter():
    source = sharding("", "", unreduced="x")
    steps = kinds(source, sharding("x", ""), links={"x": FAST, "y": FAST})
    assert steps == [("reduce_scatter", ("x",))]


def test_partial_sum_stays_partial_while_another_axis_is_gathered():
    source = sharding("x", "", unreduced="y")
    target = sharding("", "", unreduced="y")
    assert kinds(source, target, links={"x": FAST, "y": FAST}) == [("all_gather", ("x",))]


def test_two_unreduced_axes_are_one_all_reduce():
    source = sharding("", "", unreduced="xy")
    assert kinds(source, sharding("", "")) == [("all_reduce", ("x", "y"))]


def test_gather_over_a_slow_axis_carries_each_byte_once():
    steps = kinds(sharding("x", ""), sharding("", ""), shape=(8000, 8000))
    assert steps == [("all_slice", ("y",)), ("all_gather", ("x",)), ("all_gather", ("y",))]


def test_dim_that_does_not_divide_cannot_be_split():
    source, target = sharding("", ""), sharding("x", "")
    assert math.isinf(reshard(source, target, MESH_2D, (7, 8), 4, LINKS).seconds)
    with pytest.raises(PlanError, match=r"from \[-, -\] to \[x, -\]") as caught:
        reshard_steps(source, target, MESH_2D, (7, 8), 4, LINKS)
    assert caught.value.code == "SHARDC-210"


def test_whole_value_cannot_become_unreduced():
    source, target = sharding(""), sharding("", unreduced="x")
    assert math.isinf(reshard(source, target, MESH_2D, (8,), 4, LINKS).num_bytes)
    with pytest.raises(PlanError, match="unreduced over x"):
        reshard_steps(source, target, MESH_2D, (8,), 4, LINKS)


@pytest.mark.parametrize(
    "target",
    [sharding("x"), sharding("q", ""), sharding("x", "x"), sharding("x", "", unreduced="x")],
)
def test_what_is_no_sharding_of_the_value_is_impossible(target):
    assert not is_valid(target, MESH_2D, (8, 8))
    assert math.isinf(reshard(sharding("", ""), target, MESH_2D, (8, 8), 4, LINKS).seconds)


def test_order_of_unreduced_axes_does_not_matter():
    first, second = sharding("", unreduced="xy"), sharding("", unreduced="yx")
    assert reshard(first, second, MESH_2D, (8,), 4, LINKS).steps == ()


M = 4 * 64 * 64  # bytes of the whole value
SYMBOL = {"R": "", "S0": "x", "S1": "y", "S01": "xy"}


@pytest.mark.parametrize(
    ("source", "target", "kind", "gathered_or_local_bytes", "axis"),
    [
        ("R R", "S0 S1", None, 0, "x"),
        ("S0 R", "R R", "all_gather", M, "x"),
        ("S0 S1", "S0 R", "all_gather", M / 2, "y"),
        ("S0 R", "R S0", "all_to_all", M / 2, "x"),
        ("S0 S1", "S01 R", "all_to_all", M / 4, "y"),
    ],
)
def test_alpa_table_2(source, target, kind, gathered_or_local_bytes, axis):
    """Alpa (OSDI 2022), table 2, with equal links: one collective of these bytes."""
    before = sharding(*(SYMBOL[s] for s in source.split()))
    after = sharding(*(SYMBOL[s] for s in target.split()))
    links = {"x": Link(1e9, 0.0, 1e9), "y": Link(1e9, 0.0, 1e9)}
    steps = reshard_steps(before, after, MESH_2D, (64, 64), 4, links)
    assert [(s.kind, s.axes) for s in steps if s.kind != "all_slice"] == (
        [(kind, (axis,))] if kind else []
    )
    seconds = reshard(before, after, MESH_2D, (64, 64), 4, links).seconds
    assert seconds == pytest.approx(gathered_or_local_bytes / 2 / 1e9)
