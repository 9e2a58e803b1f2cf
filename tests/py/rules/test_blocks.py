"""Batches that lie behind each other in one dim are cut, each for itself."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch.accumulations import analyse
from shardc.analysis.batch.batch_state import Cut
from shardc.analysis.batch.step_program import program_of
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.programs import Program
from tests.py.split_programs import copy_of, flops_of, normalized, run_module, run_split

ROWS = 8


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


W = [random(6, 10), random(10, 6)]


def net(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w[0]) @ w[1]


def trained(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of gradient descent on a loss."""

    def step(w: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value

    return step


def preference(w: Any, chosen: Any, rejected: Any) -> Any:
    rewards = net(w, jnp.concatenate([chosen, rejected])).sum(-1)
    better, worse = jnp.split(rewards, 2)
    return -jnp.mean(jax.nn.log_sigmoid(better - worse))


def two_views(w: Any, first: Any, second: Any) -> Any:
    z = net(w, jnp.concatenate([first, second]))
    half = first.shape[0]
    return jnp.mean((z[:half] - jax.lax.stop_gradient(z[half:])) ** 2)


def batches_of_other_sizes(w: Any, labelled: Any, y: Any, weak: Any, strong: Any) -> Any:
    z = net(w, jnp.concatenate([labelled, weak, strong]))
    known, rest = z[: len(labelled)], z[len(labelled) :]
    guess, seen = jnp.split(rest, 2)
    return jnp.mean((known - y) ** 2) + jnp.mean((jax.lax.stop_gradient(guess) - seen) ** 2)


def real_and_made(w: Any, real: Any, made: Any) -> Any:
    told = net(w, jnp.concatenate([real, made]))[:, 0]
    labels = jnp.concatenate([jnp.ones(len(real)), jnp.zeros(len(made))])
    return jnp.mean(jnp.logaddexp(0.0, told) - labels * told)


def in_a_loop(w: Any, x: Any, given: Any) -> Any:
    """Guidance without a classifier: with and without a condition, in one batch."""

    def denoise(x: Any, _: Any) -> Any:
        both = net(w, jnp.concatenate([x, x]) + jnp.concatenate([given, jnp.zeros_like(given)]))
        with_, without = jnp.split(both, 2)
        return x - 0.1 * (without + 3.0 * (with_ - without)), None

    return jnp.mean(jax.lax.scan(denoise, x, None, length=3)[0] ** 2)


BATCH = random(ROWS, 6)
STEPS: dict[Callable[..., Any], tuple[Any, ...]] = {
    preference: (BATCH, 2 * BATCH),
    two_views: (BATCH, 2 * BATCH),
    batches_of_other_sizes: (BATCH, BATCH / 2, random(3 * ROWS, 6), random(3 * ROWS, 6) + 1),
    real_and_made: (BATCH, 2 * BATCH),
    in_a_loop: (BATCH, 2 * BATCH),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", STEPS, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("count", [2, 8])
def test_steps_on_batches_behind_each_other_are_cut(loss: Callable[..., Any], count: int) -> None:
    module, flat = normalized(Program(trained(loss), (W, *STEPS[loss]), (0,)))
    cut = copy_of(module)
    run_passes(cut, [SplitMicrobatches(count)])
    for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert flops_of(cut, "body") * count == pytest.approx(flops_of(module), rel=0.02)


BLOCKS = [
    ("%r = stablehlo.concatenate %x, %x, dim = 0 : (T8, T8) -> T16", Cut(0, 2)),
    ("%r = stablehlo.concatenate %x, %w, dim = 0 : (T8, T4) -> T12", None),
    ("%r = stablehlo.concatenate %x, %l, dim = 0 : (T8, T16) -> T24", Cut(0, 3)),
    ("%r = stablehlo.slice %x [0:4, 0:6] : (T8) -> T4", None),
    ("%r = stablehlo.pad %x, %n, low = [8, 0], high = [0, 0], interior = [0, 0]"
     " : (T8, tensor<f32>) -> T16", Cut(0, 2)),
    ("%r = stablehlo.pad %x, %n, low = [4, 0], high = [0, 0], interior = [0, 0]"
     " : (T8, tensor<f32>) -> T12", None),
    ("%r = stablehlo.pad %x, %n, low = [1, 0], high = [0, 0], interior = [1, 0]"
     " : (T8, tensor<f32>) -> T16", None),
    ("%r = stablehlo.pad %x, %n, low = [-4, 0], high = [0, 0], interior = [0, 0]"
     " : (T8, tensor<f32>) -> T4", None),
    ("%b = stablehlo.concatenate %x, %x, dim = 0 : (T8, T8) -> T16"
     " %r = stablehlo.slice %b [8:16, 0:6] : (T16) -> T8", Cut(0)),
    ("%b = stablehlo.concatenate %x, %x, dim = 0 : (T8, T8) -> T16"
     " %r = stablehlo.slice %b [4:12, 0:6] : (T16) -> T8", None),
    ("%b = stablehlo.concatenate %x, %x, dim = 0 : (T8, T8) -> T16"
     " %r = stablehlo.slice %b [0:16:2, 0:6] : (T16) -> T8", None),
]  # fmt: skip


@pytest.mark.parametrize(("op", "cut"), BLOCKS)
def test_blocks_are_cut_where_all_pieces_consist_of_them(op: str, cut: Cut | None) -> None:
    body = op
    for rows in (4, 8, 12, 16, 24):
        body = body.replace(f"T{rows}", f"tensor<{rows}x6xf32>")
    arguments = "%x: tensor<8x6xf32>, %w: tensor<4x6xf32>, %l: tensor<16x6xf32>, %n: tensor<f32>"
    module = parse(f"func.func public @main({arguments}) {{ {body} return }}")
    flow = analyse(program_of(module.operation), {0: 0})
    assert flow.states[-1].cut == cut
