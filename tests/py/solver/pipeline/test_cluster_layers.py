"""Layer clustering against brute force."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import StageError
from shardc.solver.pipeline.cluster_layers import Value, cluster_layers

Layers = list[tuple[int, int]]


def score(flops: list[int], values: list[Value], layers: Layers) -> tuple[int, int, int]:
    """Most bytes read from before a layer, bytes of all layers, sum of squared FLOPs."""
    reads = [
        sum(
            v.num_bytes
            for v in values
            if 0 <= v.producer < a and any(a <= c <= b for c in v.consumers)
        )
        for a, b in layers
    ]
    return max(reads), sum(reads), sum(sum(flops[a : b + 1]) ** 2 for a, b in layers)


def brute_force(
    flops: list[int], values: list[Value], heavy: list[bool], num_layers: int
) -> tuple[int, int, int]:
    """Tries every way of cutting, with delta 0.5 or the most that one layer must have."""
    if sum(heavy) < num_layers:
        heavy = [True] * len(flops)
    ways = []
    for cuts in itertools.combinations(range(1, len(flops)), num_layers - 1):
        layers = [(a, b - 1) for a, b in itertools.pairwise([0, *cuts, len(flops)])]
        if all(any(heavy[a : b + 1]) for a, b in layers):
            ways.append((max(sum(flops[a : b + 1]) for a, b in layers), layers))
    most = max(1.5 * sum(flops) / num_layers, min(worst for worst, _ in ways)) * (1 + 1e-12)
    return min(score(flops, values, layers) for worst, layers in ways if worst <= most)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[Value], list[bool], int]:
    flops = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    num_layers = draw(st.integers(1, len(flops)))
    values = []
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.integers(-1, len(flops) - 1))
        readers = st.integers(max(producer, 0), len(flops) - 1)
        values.append(
            Value(producer, tuple(draw(st.lists(readers, max_size=3))), draw(st.integers(0, 9)))
        )
    return flops, values, [draw(st.booleans()) for _ in flops], num_layers


@given(programs())
def test_equals_brute_force(program: tuple[list[int], list[Value], list[bool], int]) -> None:
    flops, values, heavy, num_layers = program
    layers = cluster_layers(flops, values, num_layers, heavy=heavy)
    assert [a for a, _ in layers] == [0, *(b + 1 for _, b in layers[:-1])]
    assert layers[-1][1] == len(flops) - 1 and all(a <= b for a, b in layers)
    assert score(flops, values, layers) == brute_force(flops, values, heavy, num_layers)


def test_a_transformer_is_cut_between_its_blocks() -> None:
    """Inside a block several values are alive, between blocks only the residual."""
    values = []
    for block in range(8):
        x = 4 * block
        values += [Value(x, (x + 1, x + 3), 10), Value(x + 1, (x + 2,), 40)]
        values += [Value(x + 2, (x + 3,), 40), Value(x + 3, (x + 4,), 10)]
    values[-1] = Value(31, (), 10)
    layers = cluster_layers([0, 4, 4, 0] * 8, values, 4)
    assert [a % 4 in (0, 1) for a, _ in layers] == [True] * 4
    assert all(b - a in (6, 7, 8) for a, b in layers)


def test_an_op_that_is_more_than_a_share_is_a_layer_alone() -> None:
    """Fewer bytes cross further on, but the first layer has too much work as it is."""
    values = [Value(0, (1,), 8), Value(1, (2,), 8), Value(2, (3,), 1)]
    assert cluster_layers([10, 1, 1, 1], values, 2, delta=0.2) == [(0, 0), (1, 3)]


@pytest.mark.slow
def test_long_programs_are_cut_between_blocks_of_ops() -> None:
    values = [Value(i, (i + 1,), 1 if i % 100 == 99 else 50) for i in range(3999)]
    layers = cluster_layers([1.0] * 4000, values, 8)
    assert len(layers) == 8 and all(a % 100 == 0 for a, _ in layers)


def test_more_layers_than_ops_is_an_error() -> None:
    with pytest.raises(StageError, match=r"SHARDC-160.*5 layers"):
        cluster_layers([1.0] * 4, [], 5)
