"""Token slices compute what whole sequences computed, and only where no token looks ahead."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch import phases
from shardc.check.forms.engines import interpreter
from shardc.check.forms.stage_form import run_stages
from shardc.errors import CheckError, StageError
from shardc.ir.attributes import NUM_SLICES, get_int
from shardc.ir.context import Module, parse
from shardc.ir.pass_manager import run_passes
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_stages import PlanStages
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.passes.unroll_layers import UnrollLayers
from tests.py.passes.test_outline_stages import flat, relative_error

ROWS, TOKENS, WIDTH = 4, 6, 4
Mask = Callable[[jax.Array], jax.Array]

QUERY, KEY = jnp.arange(TOKENS)[:, None], jnp.arange(TOKENS)[None, :]


def infinite(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY >= KEY, scores, -jnp.inf)


def lowest(scores: jax.Array) -> jax.Array:
    seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
    return jnp.where(seen, scores, jnp.finfo(scores.dtype).min)


def added(scores: jax.Array) -> jax.Array:
    return scores + jnp.where(QUERY < KEY, -1e9, 0.0) / 0.5


def window(scores: jax.Array) -> jax.Array:
    return jnp.where((QUERY >= KEY) & (QUERY - KEY < 3), scores, -1e30)


BIAS = jnp.asarray(np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), 0, -np.inf))


def bias_closed_over(scores: jax.Array) -> jax.Array:
    return scores + BIAS


SLOPES = jnp.asarray([0.5, 0.25, 0.125, 0.0625])[:, None, None]  # one per row of the batch


def with_distances(scores: jax.Array) -> jax.Array:
    """ALiBi: what is far weighs less."""
    far = (KEY - QUERY).astype(scores.dtype) * SLOPES[: len(scores)]
    return scores + far + jnp.where(QUERY >= KEY, 0.0, -1e9)


def biased_behind(scores: jax.Array) -> jax.Array:
    """A second bias, which moves what is hidden by a known number at most."""
    near = jnp.where(KEY % 2 == 0, 3.0, -2.0) * jnp.tanh(scores)
    return jnp.where(QUERY >= KEY, scores, -1e9) + near - QUERY


def logarithm(scores: jax.Array) -> jax.Array:
    return scores + jnp.log(jnp.sqrt(jnp.where(QUERY >= KEY, 1.0, 0.0)))


def by_norms(scores: jax.Array) -> jax.Array:
    """Divisors that keep away from zero."""
    return lowest(scores / jnp.sqrt(2.0 + jnp.cos(scores)) / (1 + jnp.exp(jnp.sin(scores))))


def cut_from_a_larger(scores: jax.Array) -> jax.Array:
    seen = jnp.tril(jnp.ones((TOKENS + 2, TOKENS + 2), bool))
    return jnp.where(seen[:TOKENS, :TOKENS], scores, -jnp.inf)


def softmax(scores: jax.Array) -> jax.Array:
    return jax.nn.softmax(scores)


def attention(mask: Mask, weigh: Callable[[jax.Array], jax.Array] = softmax) -> Any:
    """A layer of self-attention."""

    def layer(w: jax.Array, x: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqd,bkd->bqk", x @ w, x) / 2
        return x + jnp.einsum("bqk,bkd->bqd", weigh(mask(scores)), x @ w)

    return layer


def transposed(w: jax.Array, x: jax.Array) -> jax.Array:
    """Attention with keys along the rows of its squares."""
    scores = jnp.einsum("bkd,bqd->bkq", x @ w, x)
    weights = jax.nn.softmax(jnp.where(QUERY.T >= KEY.T, scores, -jnp.inf), axis=1)
    return x + jnp.einsum("bkq,bkd->bqd", weights, x)


def seen_only(scores: jax.Array) -> jax.Array:
    """A softmax that leaves out what is masked, and nothing but that."""
    return jax.nn.softmax(scores, where=QUERY >= KEY)


def with_positions(w: jax.Array, x: jax.Array) -> jax.Array:
    """Rows that differ by their places alone."""
    angle = jnp.arange(TOKENS)[:, None] * jnp.ones(WIDTH)
    return jnp.tanh(x @ w + jnp.sin(angle.astype(x.dtype)))


def running(w: jax.Array, x: jax.Array) -> jax.Array:
    """Running sums and maxima of the tokens, which attention meets as well."""
    x = x + jnp.cumsum(jnp.tanh(x @ w), axis=1) / 10
    return attention(infinite)(w, x - 0.1 * jax.lax.cummax(jax.lax.stop_gradient(x), axis=1))


def step_of(layer: Any) -> Any:
    """Gradient descent on a table and two layers, and the tokens' own results."""

    def loss_of(state: Any, tokens: jax.Array) -> Any:
        table, first, second = state
        x = jnp.tanh(layer(first, table[tokens[:, :-1]]) @ first)
        x = layer(second, x)
        return jnp.mean((x - table[tokens[:, 1:]]) ** 2), x

    def step(state: Any, tokens: jax.Array) -> Any:
        (loss, x), gradients = jax.value_and_grad(loss_of, has_aux=True)(state, tokens)
        return [p - 0.1 * g for p, g in zip(state, gradients, strict=True)], loss, x

    return step


def arguments() -> Any:
    draw = np.random.default_rng(0)
    state = [draw.normal(size=(7, WIDTH)), *draw.normal(size=(2, WIDTH, WIDTH))]
    return state, draw.integers(0, 7, (ROWS, TOKENS + 1))


def staged(step: Any, args: Any, microbatches: int = 2) -> Module:
    """Two stages of a step, in functions."""
    module = parse(jax.jit(step, donate_argnums=0).lower(*args).as_text())
    stages = PlanStages(stages=2), OutlineStages(accumulate=True), UnrollLayers()
    run_passes(module, [*NORMALIZE, SplitMicrobatches(microbatches), *stages])
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "microbatches", "slices"),
    [
        (attention(infinite), 2, 2),
        (attention(lowest), 1, 4),
        (attention(added), 1, 3),
        (attention(window), 1, 6),
        (attention(bias_closed_over), 1, 2),
        (attention(with_distances), 1, 2),
        (attention(biased_behind), 1, 3),
        (attention(logarithm), 1, 2),
        (attention(by_norms), 1, 2),
        (attention(cut_from_a_larger), 1, 2),
        (attention(lambda scores: scores, seen_only), 1, 2),
        (transposed, 1, 2),
        (with_positions, 2, 3),
    ],
)
def test_results_stay_the_same(layer: Any, microbatches: int, slices: int) -> None:
    results_stay_the_same(layer, microbatches, slices)


@pytest.mark.slow
def test_running_sums_go_on_from_slice_to_slice() -> None:
    results_stay_the_same(running, 1, 3)


def recomputed(w: jax.Array, x: jax.Array) -> jax.Array:
    """Running sums of running sums under a checkpoint, and attention of what they come to."""

    def layer(w: jax.Array, x: jax.Array) -> jax.Array:
        x = x + jnp.tanh(jnp.cumsum(jnp.tanh(x @ w), axis=1))
        x = x + jnp.sin(jnp.cumsum(x @ w, axis=1)) / 10
        return attention(infinite)(w, x)

    return jax.checkpoint(layer)(w, x)


@jax.checkpoint
def summed_again(w: jax.Array, x: jax.Array) -> jax.Array:
    """The backward sums up the tokens once more."""
    return x + jnp.tanh(jnp.cumsum(x @ w, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "microbatches", "slices"),
    [(summed_again, 1, 6), (recomputed, 1, 3), (recomputed, 2, 2)],
)
def test_running_sums_are_recomputed_of_all_tokens_so_far(
    layer: Any, microbatches: int, slices: int
) -> None:
    results_stay_the_same(layer, microbatches, slices)


@pytest.mark.slow
def test_a_mask_that_is_made_once_per_step_is_read_where_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As are all of more than SMALL elements."""
    monkeypatch.setattr(phases, "SMALL", TOKENS)
    results_stay_the_same(attention(lowest), 2, 2)


def test_functions_that_are_run_in_turn_refuse_what_slices_take_for_granted() -> None:
    """As the runtime does: an infinite activation of a later token is left out."""
    with jax.enable_x64(True):
        state, tokens = arguments()
        module = staged(step_of(attention(lowest)), (state, tokens), 1)
        run_passes(module, [SliceTokens(2)])
        state[0][:] = np.inf
        args = [*flat(state), tokens.reshape(1, -1, TOKENS + 1)]
        with module.context, pytest.raises(CheckError) as caught:
            run_stages(module.operation, args, interpreter)
    assert caught.value.code == "SHARDC-271"


def results_stay_the_same(layer: Any, microbatches: int, slices: int) -> None:
    step_stays_the_same(step_of(layer), arguments, microbatches, slices)


def step_stays_the_same(
    step: Any, arguments_of: Callable[[], Any], microbatches: int, slices: int
) -> None:
    with jax.enable_x64(True):
        args = arguments_of()
        expected = flat(jax.jit(step)(*args))
        module = staged(step, args, microbatches)
        run_passes(module, [SliceTokens(slices)])
        *state, tokens = flat(args)
        parts = tokens.reshape(microbatches, -1, TOKENS + 1)
        with module.context:
            assert get_int(module.operation, NUM_SLICES) == slices
            results = run_stages(module.operation, [*state, parts], interpreter)
    for ours, theirs in zip(results, expected, strict=True):
        assert relative_error(ours.reshape(theirs.shape), theirs) < 1e-12


def anti_causal(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY <= KEY, scores, -jnp.inf)


def one_ahead(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY + 1 >= KEY, scores, -jnp.inf)


def cut_off_the_diagonal(scores: jax.Array) -> jax.Array:
    """A larger mask, cut so that each query sees two keys ahead."""
    seen = jnp.triu(jnp.ones((TOKENS + 2, TOKENS + 2), bool))
    return jnp.where(seen[:TOKENS, 2:].T, scores, -jnp.inf)


def shallow(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY >= KEY, scores, -1e3)


def hides_itself(scores: jax.Array) -> jax.Array:
    """The first token sees nothing, so that all keys weigh the same for it."""
    return jnp.where(QUERY > KEY, scores, -1e9)


def padded(scores: jax.Array) -> jax.Array:
    """What data hides as well may leave a token nothing but tokens that come later."""
    seen = jnp.where(scores > 0, scores, -1e9)
    return jnp.where(QUERY >= KEY, seen, -1e9)


def padded_behind(scores: jax.Array) -> jax.Array:
    hidden = jnp.where(QUERY >= KEY, scores, -1e9)
    return hidden + jnp.where(scores > 0, 0.0, -1e9)


def shallow_by_bias(scores: jax.Array) -> jax.Array:
    """The second bias lifts up what the first has hidden."""
    return jnp.where(QUERY >= KEY, scores, -1e9) + jnp.where(QUERY >= KEY, 0.0, 1e9)


def wraps_around(scores: jax.Array) -> jax.Array:
    """What comes later gets 2^32 - 1, not -1."""
    hidden = (QUERY >= KEY).astype(jnp.uint32) - jnp.uint32(1)
    return scores + hidden.astype(scores.dtype) * 1e9


def divides_integers(scores: jax.Array) -> jax.Array:
    """3 / 2 is 1, so nothing is hidden."""
    three = jnp.where(QUERY >= KEY, 0, 3)
    hidden = jax.lax.div(three, jnp.full_like(three, 2)) * 2 - jnp.where(QUERY >= KEY, 0, 2)
    return scores - hidden.astype(scores.dtype) * 1e9


def rounds(scores: jax.Array) -> jax.Array:
    """2^24 + 1 is 2^24 in 32 bits, so nothing is hidden."""
    one = jnp.where(QUERY >= KEY, jnp.float32(0), jnp.float32(1))
    hidden = (jnp.float32(2**24) + one) - jnp.float32(2**24)
    return scores - hidden.astype(scores.dtype) * 1e9


def raised(scores: jax.Array) -> jax.Array:
    """Without the maximum of its row taken off, exp is not zero where the mask is not low."""
    return jnp.where(QUERY >= KEY, scores, -1e9) + 2e9


def scaled_where_hidden(scores: jax.Array) -> jax.Array:
    hidden = jnp.where(QUERY >= KEY, jnp.tanh(scores * 1e4) * 1e4, -1e9)
    return hidden * jnp.where(QUERY >= KEY, 1.0, 3e-5)


def scaled_in_steps(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY >= KEY, jnp.tanh(scores) * 1e4 * -1e4 * 20.0, -1e9)


def divided_by_scores(scores: jax.Array) -> jax.Array:
    """A quotient of two scores may be far below -1e9."""
    return jnp.where(QUERY >= KEY, -scores / (scores - 0.25), -1e9)


def divided_behind(scores: jax.Array) -> jax.Array:
    return scores / jnp.tanh(scores) + jnp.where(QUERY >= KEY, 0.0, -1e9)


def divided_by_zeros(scores: jax.Array) -> jax.Array:
    return jnp.where(QUERY >= KEY, scores / jnp.zeros_like(scores), -1e9)


def squared(scores: jax.Array) -> jax.Array:
    """The square of a score of 1e5 is larger than the mask."""
    return jnp.where(QUERY >= KEY, -scores * scores, -1e9)


def of_unsigned(scores: jax.Array) -> jax.Array:
    """Less than zero is large."""
    near = jax.lax.stop_gradient(scores).astype(jnp.uint32) - jnp.uint32(1)
    return jnp.where(QUERY >= KEY, -near.astype(scores.dtype), -1e9)


def hidden_in_a_product_of_one(w: jax.Array, x: jax.Array) -> jax.Array:
    """The same, written as a contraction of a dim of size 1."""
    scores = jnp.einsum("bqd,bkd->bqk", x @ w, x)
    padding = (x[..., :1] > 0).astype(x.dtype) * -1e9
    scores += jnp.einsum("bqd,bkd->bqk", 1 + 0 * x[..., 1:2], padding)
    weights = jax.nn.softmax(jnp.where(QUERY >= KEY, scores, -1e9))
    return x + jnp.einsum("bqk,bkd->bqd", weights, x @ w)


def hidden_in_a_product(w: jax.Array, x: jax.Array) -> jax.Array:
    """An outer product may hide a token from itself, as a sum would."""
    scores = jnp.einsum("bqd,bkd->bqk", x @ w, x)
    padding = (x[..., 0] > 0).astype(x.dtype) * -1e9
    scores += jnp.einsum("bq,bk->bqk", 1 + 0 * x[..., 1], padding)
    weights = jax.nn.softmax(jnp.where(QUERY >= KEY, scores, -1e9))
    return x + jnp.einsum("bqk,bkd->bqd", weights, x @ w)


def bits(w: jax.Array, x: jax.Array) -> jax.Array:
    """1 changes the bits of an integer, if not a boolean."""
    scores = jnp.einsum("bqd,bkd->bqk", x @ w, x)
    found = jnp.where(QUERY >= KEY, jnp.floor(scores * 4).astype(jnp.int32) | 6, 1)
    all_bits = jax.lax.reduce(found, np.int32(-1), jax.lax.bitwise_and, (2,))
    return x + jax.lax.stop_gradient(all_bits.astype(x.dtype))[..., None] * w[0]


def integer_scores(w: jax.Array, x: jax.Array) -> jax.Array:
    """The least integer minus what is above 0 is large."""
    near = jnp.round(x * 3).astype(jnp.int32)
    scores = jax.lax.stop_gradient(jnp.einsum("bqd,bkd->bqk", near, near))
    hidden = jnp.where(QUERY >= KEY, scores, np.int32(-(2**31)))
    weights = jnp.exp((hidden - hidden.max(-1, keepdims=True)).astype(x.dtype))
    return x + jnp.einsum("bqk,bkd->bqd", weights, x @ w)


def by_data(scores: jax.Array) -> jax.Array:
    return jnp.where(scores > 0, scores, -jnp.inf)


def pooled(w: jax.Array, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(jnp.mean(x @ w, axis=1, keepdims=True))


def backwards(w: jax.Array, x: jax.Array) -> jax.Array:
    return x + (x @ w)[:, ::-1]


def shifted(w: jax.Array, x: jax.Array) -> jax.Array:
    return x + jnp.roll(x @ w, -1, axis=1)


def from_the_end(w: jax.Array, x: jax.Array) -> jax.Array:
    return x + jax.lax.cumsum(x @ w, axis=1, reverse=True)


@jax.custom_vjp
def sums_cotangents(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


sums_cotangents.defvjp(
    lambda x: (jnp.tanh(x), x), lambda x, g: (jnp.cumsum(g * jnp.cos(x), axis=1),)
)


def cotangents_so_far(w: jax.Array, x: jax.Array) -> jax.Array:
    """A backward that sums up, from the first token on, what later stages give back."""
    return x + sums_cotangents(x @ w)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (attention(lambda scores: scores), "'stablehlo.reduce' takes in tokens that come later"),
        (attention(anti_causal), "takes in tokens that come later"),
        (attention(one_ahead), "takes in tokens that come later"),
        (attention(cut_off_the_diagonal), "takes in tokens that come later"),
        (attention(shallow), "takes in tokens that come later"),
        (attention(hides_itself), "takes in tokens that come later"),
        (attention(raised, jnp.exp), "takes in tokens that come later"),
        (attention(padded), "takes in tokens that come later"),
        (attention(padded_behind), "takes in tokens that come later"),
        (attention(shallow_by_bias), "takes in tokens that come later"),
        (attention(by_data), "takes in tokens that come later"),
        (attention(wraps_around), "takes in tokens that come later"),
        (attention(divides_integers), "takes in tokens that come later"),
        (attention(rounds), "takes in tokens that come later"),
        (attention(scaled_where_hidden), "takes in tokens that come later"),
        (attention(scaled_in_steps), "takes in tokens that come later"),
        (attention(divided_by_scores), "takes in tokens that come later"),
        (attention(divided_behind), "takes in tokens that come later"),
        (attention(divided_by_zeros), "takes in tokens that come later"),
        (attention(squared), "takes in tokens that come later"),
        (attention(of_unsigned), "takes in tokens that come later"),
        (hidden_in_a_product_of_one, "takes in tokens that come later"),
        (hidden_in_a_product, "takes in tokens that come later"),
        (bits, "takes in tokens that come later"),
        (integer_scores, "takes in tokens that come later"),
        (attention(infinite, lambda scores: scores), "takes in tokens that come later"),
        (pooled, "needs the sum over all tokens"),
        (backwards, "'stablehlo.reverse' makes each token of several"),
        (shifted, "makes each token of several"),
        (from_the_end, "'stablehlo.reduce_window' takes in tokens that come later"),
        (cotangents_so_far, "needs for each token what later ones give it"),
    ],
)
def test_what_looks_ahead_is_refused_with_the_op(layer: Any, said: str) -> None:
    module = staged(step_of(layer), arguments())
    with pytest.raises(StageError, match=said) as caught:
        run_passes(module, [SliceTokens(2)])
    assert caught.value.code == "SHARDC-165" and caught.value.where and caught.value.help


def test_there_are_no_more_slices_than_tokens() -> None:
    module = staged(step_of(attention(infinite)), arguments())
    with pytest.raises(StageError, match="6 tokens cannot be cut into 7 slices") as caught:
        run_passes(module, [SliceTokens(7)])
    assert caught.value.code == "SHARDC-165"


def test_what_has_no_tokens_is_refused() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    module = parse(text)
    with pytest.raises(StageError, match="hands nothing on") as caught:
        run_passes(module, [SliceTokens(2)])
    assert caught.value.code == "SHARDC-165"
