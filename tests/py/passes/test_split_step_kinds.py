"""Steps of every kind that people write are cut, and compute the same: a function for each kind."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.ir.attributes import SWEEPS
from shardc.ir.pass_manager import run_passes
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.programs import Program
from tests.py.split_programs import copy_of, flops_of, normalized, run_module, run_split

ROWS = 8


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


W = {"in": random(6, 10), "hidden": random(10, 10), "out": random(10, 4)}
X, Y = random(ROWS, 6), random(ROWS, 4)
LABELS = np.arange(ROWS, dtype=np.int32) % 4
MASK = (np.arange(ROWS) % 3 > 0).astype(np.float64)


def net(w: Any, x: Any) -> Any:
    return jnp.tanh(jnp.tanh(x @ w["in"]) @ w["hidden"]) @ w["out"]


def squares(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((net(w, x) - y) ** 2)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]


def descend(w: Any, gradient: Any, rate: float = 0.1) -> Any:
    return jax.tree.map(lambda p, g: p - rate * g, w, gradient)


def norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def evaluation(w: Any, x: Any, labels: Any) -> Any:
    logits = net(w, x)
    best, where = jax.lax.top_k(logits, 2)
    hits = jnp.any(where == labels[:, None], -1)
    return best, where, jnp.sum(hits), jnp.mean(cross_entropy(logits, labels)), x.shape[0]


def several_batch_sizes(w: Any, x: Any, y: Any, unlabelled: Any) -> Any:
    def loss(w: Any) -> Any:
        return squares(w, x, y) + jnp.mean(net(w, unlabelled) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def several_per_example(w: Any, x: Any, others: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        scores = jnp.sum(net(w, x)[:, None] * net(w, others), -1)
        return jnp.mean(jax.nn.softplus(scores)) + squares(w, others.reshape(-1, 6), y)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def metrics_with_and_without_a_batch_dim(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        predicted = net(w, x)
        each = jnp.mean((predicted - y) ** 2, -1)
        norm = jnp.sqrt(jnp.sum(predicted**2))
        spread = jnp.std(predicted, 0), jnp.max(each), jnp.sum(each > 0.5)
        return jnp.mean(each), (each, predicted, norm, spread)

    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return descend(w, gradient), value, metrics


def loss_scaling(state: Any, x: Any, y: Any) -> Any:
    value, scaled = jax.value_and_grad(lambda w: squares(w, x, y) * state["scale"])(state["w"])
    gradient = jax.tree.map(lambda g: g / state["scale"], scaled)
    fine = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradient)]))
    new = jax.tree.map(
        lambda n, p: jnp.where(fine, n, p), descend(state["w"], gradient), state["w"]
    )
    scale = jnp.where(fine, state["scale"] * 2, state["scale"] / 2)
    return {"w": new, "scale": scale}, value / state["scale"]


def clipping(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(squares)(w, x, y)
    size = norm(gradient)
    clipped = jax.tree.map(lambda g: g * jnp.minimum(1.0, 0.01 / size), gradient)
    return descend(w, clipped), value, size


def average_that_teaches(state: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean((net(w, x) - net(state["mean"], x)) ** 2) + squares(w, x, y)

    value, gradient = jax.value_and_grad(loss)(state["w"])
    new = descend(state["w"], gradient)
    mean = jax.tree.map(lambda m, p: 0.9 * m + 0.1 * p, state["mean"], new)
    return {"w": new, "mean": mean}, value


def mask(w: Any, x: Any, labels: Any, weights: Any) -> Any:
    def loss(w: Any) -> Any:
        logits = net(w, x)
        right = (jnp.argmax(logits, -1) == labels) * weights
        total = jnp.maximum(jnp.sum(weights), 1.0)
        return jnp.sum(cross_entropy(logits, labels) * weights) / total, jnp.sum(right) / total

    (value, accuracy), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return descend(w, gradient), value, accuracy


def several_losses(w: Any, x: Any, y: Any) -> Any:
    first, one = jax.value_and_grad(squares)(w, x, y)
    second, two = jax.value_and_grad(lambda w: jnp.mean(jnp.abs(net(w, x))))(w)
    return descend(descend(w, one), two, 0.01), first, second


def two_players(state: Any, x: Any, y: Any) -> Any:
    def judge(w: Any, z: Any) -> Any:
        return jnp.tanh(z @ w["out"].T) @ w["hidden"]

    def made(w: Any) -> Any:
        return jnp.mean(jax.nn.softplus(-judge(state["judge"], net(w, x))))

    def told(w: Any) -> Any:
        false = jax.nn.softplus(judge(w, net(state["maker"], x)))
        return jnp.mean(false + jax.nn.softplus(-judge(w, y)))

    loss, gradient = jax.value_and_grad(made)(state["maker"])
    other, theirs = jax.value_and_grad(told)(state["judge"])
    new = {"maker": descend(state["maker"], gradient), "judge": descend(state["judge"], theirs)}
    return new, loss, other


def loss_that_is_no_output(w: Any, x: Any, y: Any) -> Any:
    return descend(w, jax.grad(squares)(w, x, y))


def gradients_alone(w: Any, x: Any, y: Any) -> Any:
    return jax.grad(squares)(w, x, y)


def gradient_of_each_example(w: Any, x: Any, y: Any) -> Any:
    each = jax.vmap(jax.grad(squares), (None, 0, 0))(w, x, y)
    sizes = jax.vmap(norm)(each)

    def clipped_mean(g: Any) -> Any:
        return jnp.tensordot(jnp.minimum(1.0, 0.1 / sizes), g, 1) / ROWS

    return descend(w, jax.tree.map(clipped_mean, each)), sizes


def derivative_of_the_gradient(w: Any, x: Any, y: Any) -> Any:
    gradient, curved = jax.jvp(lambda w: jax.grad(squares)(w, x, y), (w,), (w,))
    return descend(w, gradient), curved


def batch_behind_the_features(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(squares)(w, x.T, y)
    return descend(w, gradient), value


def logarithm_of_a_mean(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(lambda w: jnp.log(squares(w, x, y)))(w)
    return descend(w, gradient), value


def experts(h: Any, w: Any) -> Any:
    """A layer of experts, and how unevenly they are used: a sum of products of batch means."""
    odds = jax.nn.softmax(h @ w["gate"])
    chosen = jax.nn.one_hot(jnp.argmax(odds, -1), odds.shape[-1])
    load = jnp.sum(chosen.mean(0) * odds.mean(0))
    out = jnp.einsum("bi,eij->bej", jnp.tanh(h), w["experts"])
    return h + jnp.einsum("bej,be->bj", out, chosen * odds), load


def balanced_experts(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        h, first = experts(x, w["first"])
        h, second = experts(h, w["second"])
        return jnp.mean((h[:, :4] - y) ** 2) + 0.1 * (first + second)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def scanned_experts(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        h, loads = jax.lax.scan(experts, x, w)
        return jnp.mean((h[:, :4] - y) ** 2) + 0.1 * loads.sum()

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def checkpointed_experts(w: Any, x: Any, y: Any) -> Any:
    def layer(carry: Any, w: Any) -> Any:
        h, load = jax.checkpoint(experts)(carry[0], w)
        return (h, carry[1] + load), None

    def loss(w: Any) -> Any:
        (h, load), _ = jax.lax.scan(layer, (x, 0.0), w)
        return jnp.mean((h[:, :4] - y) ** 2) + 0.1 * load

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def over_time(w: Any, x: Any, y: Any) -> Any:
    """A recurrent state before its ticks, and a sum over the batch that these add up."""

    def tick(carry: Any, _: None) -> Any:
        h, total = carry
        h = jnp.tanh(h @ w["hidden"])
        return (h, total + jnp.sum((h[:, :4] - y) ** 2)), None

    h = jnp.tanh(x @ w["in"])
    return h, jax.lax.scan(tick, (h, jnp.zeros((), x.dtype)), None, length=3)[0][1]


def logarithm_of_a_sum_over_time(w: Any, x: Any, y: Any) -> Any:
    """A loop makes the sum over the batch that the way back waits for."""
    value, gradient = jax.value_and_grad(lambda w: jnp.log(over_time(w, x, y)[1]))(w)
    return descend(w, gradient), value


def sum_before_a_checkpoint(w: Any, x: Any, y: Any) -> Any:
    """The sum that heavy work waits for comes to it through a barrier."""

    def loss(w: Any) -> Any:
        h = jnp.tanh(x @ w["in"])
        h = jax.checkpoint(lambda h, size, w: jnp.tanh((h * size) @ w))(
            h, jnp.mean(h**2), w["hidden"]
        )
        return jnp.mean((h[:, :4] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def sharpness_aware(w: Any, x: Any, y: Any) -> Any:
    first = jax.grad(squares)(w, x, y)
    away = descend(w, first, -0.05 / norm(first))
    value, gradient = jax.value_and_grad(squares)(away, x, y)
    return descend(w, gradient), value


def masked_logarithm_with_dropout(w: Any, key: Any, x: Any, labels: Any, mask: Any) -> Any:
    def loss(w: Any) -> Any:
        kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.8, x.shape)
        losses = cross_entropy(net(w, jnp.where(kept, x, 0)), labels)
        return jnp.log(jnp.sum(losses * mask) / jnp.sum(mask))

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def turned_by_a_complex_sum(w: Any, x: Any, y: Any) -> Any:
    """A sum of complex numbers over the batch is needed on the way."""

    def loss(w: Any) -> Any:
        h = jnp.tanh(jnp.tanh(x @ w["in"]) @ w["hidden"]) * (1 + 0.5j)
        turned = h * jnp.sum(h, 0).conj()
        return jnp.mean(jnp.abs(turned @ w["out"] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def loss_in_bfloat16(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.log(jnp.sum(((net(w, x) - y) ** 2).astype(jnp.bfloat16)).astype(jnp.float64))

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


KINDS: dict[Callable[..., Any], tuple[Any, ...]] = {
    evaluation: (W, X, LABELS),
    several_batch_sizes: (W, X, Y, random(2 * ROWS, 6)),
    several_per_example: (W, X, random(ROWS, 3, 6), random(3 * ROWS, 4)),
    metrics_with_and_without_a_batch_dim: (W, X, Y),
    loss_scaling: ({"w": W, "scale": np.float64(1024)}, X, Y),
    clipping: (W, X, Y),
    average_that_teaches: ({"w": W, "mean": W}, X, Y),
    mask: (W, X, LABELS, MASK),
    several_losses: (W, X, Y),
    two_players: ({"maker": W, "judge": W}, X, Y),
    loss_that_is_no_output: (W, X, Y),
    gradients_alone: (W, X, Y),
    gradient_of_each_example: (W, X, Y),
    derivative_of_the_gradient: (W, X, Y),
    batch_behind_the_features: (W, X.T, Y),
}
EXPERTS = {name: {"gate": random(6, 3), "experts": random(3, 6, 6)} for name in ("first", "second")}
STACKED = {"gate": random(4, 6, 3), "experts": random(4, 3, 6, 6)}
# Run through several times; with the FLOPs of all runs together in those of the step.
SEVERAL_RUNS_OF: dict[Callable[..., Any], tuple[tuple[Any, ...], float]] = {
    logarithm_of_a_mean: ((W, X, Y), 4 / 3),
    balanced_experts: ((EXPERTS, X, Y), 4 / 3),
    scanned_experts: ((STACKED, X, Y), 4 / 3),
    checkpointed_experts: ((STACKED, X, Y), 3 / 2),
    logarithm_of_a_sum_over_time: ((W, X, Y), 4 / 3),
    sum_before_a_checkpoint: ((W, X, Y), 2.0),
    sharpness_aware: ((W, X, Y), 1.0),
    masked_logarithm_with_dropout: ((W, np.uint32([0, 7]), X, LABELS, MASK), 4 / 3),
    turned_by_a_complex_sum: ((W, X, Y), 1.75),
    loss_in_bfloat16: ((W, X, Y), 4 / 3),
}
STATELESS = (evaluation, gradients_alone)


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_step_of_this_kind_is_cut(kind: Callable[..., Any]) -> None:
    donate = () if kind in STATELESS else (0,)
    module, flat = normalized(Program(kind, KINDS[kind], donate))
    cut = copy_of(module)
    run_passes(cut, [SplitMicrobatches(4)])
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert flops_of(cut, "body") * 4 == pytest.approx(flops_of(module), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("keep_price", [0.0, 1e-6], ids=["again", "kept"])
@pytest.mark.parametrize("kind", SEVERAL_RUNS_OF, ids=lambda kind: kind.__name__)
def test_a_step_of_this_kind_is_run_through_several_times(
    kind: Callable[..., Any], keep_price: float
) -> None:
    """At a price of almost nothing, all that would be computed twice is kept."""
    args, flops = SEVERAL_RUNS_OF[kind]
    module, flat = normalized(Program(kind, args, (0,)))
    cut = copy_of(module)
    run_passes(cut, [FissionLoops(), SplitMicrobatches(4, keep_price=keep_price)])
    assert SWEEPS in cut.operation.attributes
    rough = {"rtol": 1e-2} if kind is loss_in_bfloat16 else {"rtol": 1e-10, "atol": 1e-12}
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, **rough)
    done = flops_of(cut, "before") + 4 * flops_of(cut, "body")
    most = min(flops, 1.05) if keep_price else 1.1 * flops
    assert done <= most * flops_of(module)
    whole = copy_of(module)
    run_passes(whole, [SplitMicrobatches(1)])
    assert flops_of(whole) == flops_of(module)


def sum_that_a_loop_makes(w: Any, x: Any, y: Any) -> Any:
    """Products wait for a sum over the batch that a loop over time adds up."""

    def loss(w: Any) -> Any:
        h, total = over_time(w, x, y)
        scaled = h * jax.lax.stop_gradient(total) / 100
        return jnp.sum((jnp.tanh(scaled) @ w["hidden"]) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return descend(w, gradient), value


def test_a_sum_that_a_loop_makes_is_whole_in_later_products() -> None:
    module, flat = normalized(Program(sum_that_a_loop_makes, (W, X, Y), (0,)))
    cut = copy_of(module)
    run_passes(cut, [SplitMicrobatches(4, (3, 4), (0, 0))])
    assert SWEEPS in cut.operation.attributes
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def compared_with_all_rows(w: Any, x: Any) -> Any:
    """Without its loss: all rows are needed only behind the barrier of the backward pass."""

    def scores(w: Any, rows: Any) -> Any:
        every_pair = (((1,), (1,)), ((), ()))
        return jnp.tanh(jax.lax.dot_general(rows @ w, rows, every_pair))

    return descend(w, jax.grad(lambda w: jnp.mean(jax.checkpoint(scores)(w, 2 * x)))(w))


def test_behind_a_barrier_rows_are_cut_and_whole() -> None:
    module, flat = normalized(Program(compared_with_all_rows, (random(6, 6), X), (0,)))
    cut = copy_of(module)
    run_passes(cut, [SplitMicrobatches(4, (1,), (0,))])
    assert flops_of(cut, "body") * 4 == flops_of(module)
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def normalised_by_batch(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
            h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5)
        return jnp.mean(h**2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return descend(weights, gradient), value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "dims"),
    [((2,), (1,)), ((0,), (0,)), ((1,), (0,)), ((0, 1), (0, 0)), ((0, 2), (1, 1))],
)
def test_any_argument_may_be_called_the_batch(args: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Parts of a weight meet values that have other parts, or are needed whole."""
    program = Program(normalised_by_batch, ([random(6, 6), random(6, 6)], random(ROWS, 6)), ())
    module, flat = normalized(program)
    cut = copy_of(module)
    run_passes(cut, [SplitMicrobatches(2, args, dims)])
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)
