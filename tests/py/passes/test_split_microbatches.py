"""The split program, run phase by phase in float64, equals the program over the whole batch."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc.errors import MicrobatchError
from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    PHASE,
    SWEEPS,
    arg_attrs,
    call_target,
    get_str,
)
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import body, main_function, ops, terminator
from shardc.passes.simplify_loops import SimplifyLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.programs import FEW, PROGRAMS, Program, build
from tests.py.split_programs import Arrays, copy_of, flops_of, normalized, run_module, run_split

ROWS = 8
TOLERANCE = 1e-11  # float64; adam divides by gradients that may be small


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def split(module: ir.Module, count: int, batch_args: tuple[int, ...] = ()) -> ir.Module:
    """A split copy of a module."""
    copy = copy_of(module)
    run_passes(copy, [SplitMicrobatches(count, batch_args)])
    return copy


@functools.cache
def table(name: str) -> tuple[ir.Module, Arrays]:
    """A program of the table in float64; `split` works on copies of it."""
    return normalized(build(name, "float64", ROWS))


def assert_close(actual: Arrays, expected: Arrays, tolerance: float = TOLERANCE) -> None:
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        largest = np.abs(b.astype(np.float64)).max(initial=1e-30)
        assert (
            np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0)
            <= tolerance * largest
        )


def check(
    step: Callable[..., Any],
    *args: Any,
    count: int = 4,
    batch_args: tuple[int, ...] = (),
    donate: tuple[int, ...] = (0,),
) -> ir.Module:
    """Asserts that a step split into `count` microbatches computes the same; the split module."""
    module, flat = normalized(Program(step, args, donate))
    result = split(module, count, batch_args)
    assert_close(run_split(result, flat), run_module(module, flat))
    return result


def batch_arguments(module: ir.Module) -> list[int]:
    """Positions of the arguments that were cut."""
    attrs = arg_attrs(main_function(module.operation))
    return [a for a, each in enumerate(attrs) if BATCH_DIM in each]


def accumulates(module: ir.Module) -> list[str]:
    """Kinds of the accumulations, in order."""
    found = ops(main_function(module.operation))
    return [str(get_str(op, KIND)) for op in found if call_target(op) == ACCUMULATE]


def names(module: ir.Module, phase: str) -> set[str]:
    """Names of the ops of a phase."""
    return {op.name for op in ops(main_function(module.operation)) if get_str(op, PHASE) == phase}


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


RUN = "gpt_mask gpt_dropout gpt_checkpoint gpt_bf16 moe conv".split()  # the others: test_table.py


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("mlp", 2), ("mlp", 8), *((name, 4) for name in RUN)])
def test_programs_compute_the_same(name: str, count: int) -> None:
    module, args = table(name)
    assert_close(run_split(split(module, count), args), run_module(module, args))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "mlp_batch_norm"])
def test_every_microbatch_does_its_share_of_the_products(name: str) -> None:
    module, _ = table(name)
    result = split(module, 4)
    assert flops_of(result, "body") * 4 == pytest.approx(flops_of(module), rel=0.02)
    assert flops_of(result, "before") + flops_of(result, "after") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_clip", "mlp_batch_norm"])
def test_one_microbatch_is_always_possible(name: str) -> None:
    module, args = table(name)
    result = split(module, 1)
    assert_close(run_split(result, args), run_module(module, args))
    assert (flops_of(result, "body"), flops_of(result, "after")) == (flops_of(module), 0)


@pytest.mark.slow
def test_one_microbatch_of_a_checkpointed_step_that_needs_the_whole_batch() -> None:
    """The barriers of `jax.checkpoint` take batch arguments and parameters side by side."""

    def step(params: Any, x: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            y = jax.checkpoint(forward)(params, x)
            y = (y - jnp.mean(y, axis=0)) / jnp.std(y, axis=0)
            return jnp.mean(jax.checkpoint(lambda y, v: jnp.sin(y @ v.T))(y, params["v"]))

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    result = check(step, PARAMETERS, random(8, 6), count=1)
    assert flops_of(result, "after") == 0
    several = check(step, PARAMETERS, random(8, 6), count=2)
    assert "run through 5 times" in str(several.operation.attributes[SWEEPS])


@pytest.mark.slow
def test_each_gradient_is_accumulated_once() -> None:
    parameters = len(jax.tree.leaves(build("gpt").args[0]["params"]))
    assert accumulates(split(table("gpt")[0], 2)) == ["sum"] * (parameters + 1)  # and the loss


@pytest.mark.slow
def test_clipping_adds_no_accumulation() -> None:
    plain, clipped = (table(name)[0] for name in ("gpt", "gpt_clip"))
    assert accumulates(split(plain, 2)) == accumulates(split(clipped, 2))


def test_random_bits_are_drawn_once_for_the_whole_batch() -> None:
    module, _ = table("gpt_dropout_key_argument")
    result = split(module, 2)
    assert "stablehlo.while" in names(result, "before")
    assert not {"stablehlo.while", "stablehlo.xor"} & names(result, "body")
    # What the microbatches take their part of is the masks, not the bits they were made of.
    slices = [
        str(ir.ShapedType(op.results[0].type).element_type)
        for op in ops(main_function(result.operation))
        if op.name == "stablehlo.dynamic_slice" and get_str(op, PHASE) == "body"
    ]
    assert sorted(slices) == ["i1"] * (2 * FEW.layers) + ["i32"] * 2


def test_mask_normaliser_is_summed_before() -> None:
    module, _ = table("gpt_mask")
    assert "stablehlo.reduce" in names(split(module, 2), "before")


@pytest.mark.slow
def test_bfloat16_with_float32_masters() -> None:
    with jax.enable_x64(False):
        module, args = normalized(build("gpt_bf16", "float32", ROWS))
        result, exact = split(module, 2), run_module(module, args)[-1]
        np.testing.assert_allclose(run_split(result, args)[-1], exact, rtol=1e-2)
    sums = [op for op in ops(main_function(result.operation)) if call_target(op) == ACCUMULATE]
    assert {str(ir.ShapedType(op.results[0].type).element_type) for op in sums} == {"f32"}


@pytest.mark.slow
def test_size_of_the_body_does_not_depend_on_the_count() -> None:
    module, _ = table("gpt")
    modules = [split(module, count) for count in (2, 4, 8)]
    assert len({len(ops(main_function(m.operation))) for m in modules}) == 1


# ---- smaller programs ---------------------------------------------------------------------------

PARAMETERS = {"w": random(6, 5, seed=1), "v": random(5, 3, seed=2)}


def forward(params: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ params["w"]) @ params["v"]


def test_per_example_results_are_put_together() -> None:
    def step(params: Any, x: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            y = forward(params, x)
            return jnp.mean(y**2), (y, jnp.argmax(y, axis=-1))

        (loss, (y, best)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        new = jax.tree.map(lambda p, g: p - g, params, grads)
        return new, loss, y, best

    result = check(step, PARAMETERS, random(8, 6))
    assert accumulates(result).count("concat") == 2


def test_evaluation_without_backward() -> None:
    def step(params: Any, x: Any, y: Any) -> Any:
        logits = forward(params, x)
        right = jnp.sum(jnp.argmax(logits, axis=-1) == y)
        return logits, right, jnp.max(logits)

    labels = np.arange(8, dtype=np.int32) % 3
    result = check(step, PARAMETERS, random(8, 6), labels, donate=())
    assert batch_arguments(result) == [2, 3]


def test_batch_behind_another_dim() -> None:
    def step(params: Any, x: Any, y: Any) -> Any:  # [time, batch, features]
        def loss_fn(params: Any) -> Any:
            hidden = jax.nn.softmax(x @ params["w"], axis=0)  # over time: that is no batch
            flat = hidden.reshape(-1, 5) @ params["v"]  # [time * batch, ..]: batch is minor
            return jnp.mean((flat.reshape(5, 8, 3) - y) ** 2), flat

        (loss, flat), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss, flat

    result = check(step, PARAMETERS, random(5, 8, 6), random(5, 8, 3))
    assert [op for op in accumulates(result) if op == "concat"] == ["concat"]
    main = main_function(result.operation)
    assert str(body(main).arguments[2].type) == "tensor<5x4x2x6xf64>"


def test_the_dim_along_which_most_work_runs_is_the_batch() -> None:
    def step(params: Any, seen: Any, gains: Any) -> Any:  # [time, batch, features]
        def values(params: Any, seen: Any) -> Any:
            return jnp.tanh(seen @ params["w"]) @ params["v"]

        def discounted(total: Any, each: Any) -> Any:
            return each + 0.9 * total, each + 0.9 * total

        known = values(params, seen)  # could be cut along time, but for the scan behind it
        _, wanted = jax.lax.scan(discounted, jnp.zeros((8, 3)), gains + known[1:], reverse=True)

        def loss_fn(params: Any) -> Any:
            return jnp.mean((values(params, seen[:-1]) - jax.lax.stop_gradient(wanted)) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    result = check(step, PARAMETERS, random(12, 8, 6), random(11, 8, 3))
    main = main_function(result.operation)
    assert str(body(main).arguments[2].type) == "tensor<12x4x2x6xf64>"


def test_constant_masks_of_the_batch_size_are_not_cut() -> None:
    def step(params: Any, x: Any, mask: Any) -> Any:  # mask: [T, T] with T = batch
        def loss_fn(params: Any) -> Any:
            scores = jnp.einsum("btd,bsd->bts", x @ params["w"], x @ params["w"])
            mixed = jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ (x @ params["w"])
            return jnp.mean(mixed**2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    params = {"w": PARAMETERS["w"]}
    mask = np.tril(np.ones((8, 8), bool))
    result = check(step, params, random(8, 8, 6), mask)
    assert batch_arguments(result) == [1]


def test_state_is_found_without_donation() -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(forward(p, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    result = check(step, PARAMETERS, random(8, 6), donate=())
    assert batch_arguments(result) == [2]


def test_batch_is_donated_too() -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(forward(p, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    result = check(step, PARAMETERS, random(8, 6), donate=(0, 1))
    assert batch_arguments(result) == [2]


def test_batch_argument_that_is_returned_and_used_after() -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(forward(p, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), x, x * loss, jnp.mean(x)

    check(step, PARAMETERS, random(8, 6))


def test_weight_decay_in_the_loss_and_a_light_matrix_product() -> None:
    def step(params: Any, x: Any, weight: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            losses = jnp.sum(forward(params, x) ** 2, axis=-1)
            decay = sum(jnp.sum(p**2) for p in jax.tree.leaves(params))
            return jnp.dot(losses, weight) / jnp.sum(weight) + 0.1 * decay

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    check(step, PARAMETERS, random(8, 6), np.abs(random(8)))


def test_optimizer_with_matrix_products_runs_after() -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(forward(p, x) ** 2))(params)

        def orthogonal(g: Any) -> Any:
            for _ in range(3):
                g = 1.5 * g - 0.5 * g @ (g.T @ g)
            return g

        return jax.tree.map(lambda p, g: p - orthogonal(g), params, grads), loss

    result = check(step, PARAMETERS, random(8, 6))
    assert flops_of(result, "after") > 0


def test_scan_over_layers() -> None:
    def step(params: Any, x: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            y, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params)
            return jnp.mean(y**2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return params - grads, loss

    result = check(step, random(3, 6, 6), random(8, 6, seed=3))
    assert "stablehlo.while" in names(result, "body")


@pytest.mark.slow
def test_of_a_constant_mask_a_loop_gets_the_part_of_its_microbatch() -> None:
    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            mask = jnp.broadcast_to(jnp.arange(6) < 4, (8, 6))
            y, _ = jax.lax.scan(lambda x, w: (jnp.where(mask, x @ w, x), None), x, params)
            return jnp.sum(y**2)

        return params - jax.grad(loss)(params)

    args = (random(3, 6, 6), random(8, 6, seed=1))
    module, flat = normalized(Program(step, args, (0,)))
    run_passes(module, [SimplifyLoops()])  # the mask is used from outside, not carried around
    result = split(module, 4)
    assert_close(run_split(result, flat), run_module(module, flat))
    assert "tensor<2x6xi1>" in str(result) and "tensor<8x6xi1>" not in str(result)


@pytest.mark.slow
def test_scan_over_time_with_checkpointed_layers_inside() -> None:
    """A partial sum carried around (the gradient of `w`), nested loops, whole constants inside."""

    def step(params: Any, x: Any) -> Any:  # x: [batch, time, features]
        def loss_fn(params: Any) -> Any:
            @jax.checkpoint
            def layer(h: Any, w: Any) -> Any:
                return jax.nn.relu(h @ w) + jnp.linspace(0.0, 1.0, 8)[:, None], None

            def cell(h: Any, x: Any) -> Any:
                h = jnp.tanh(h @ params["w"] + x)
                h, _ = jax.lax.scan(layer, h, params["layers"])
                return h, jnp.sum(h, axis=-1)

            h, sums = jax.lax.scan(cell, jnp.zeros((8, 6)), x.swapaxes(0, 1))
            return jnp.mean(h**2) + jnp.mean(sums**2), sums

        (loss, sums), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss, sums

    params = {"w": random(6, 6), "layers": random(2, 6, 6, seed=1)}
    result = check(step, params, random(8, 3, 6, seed=3))
    assert accumulates(result).count("sum") == 3 and accumulates(result).count("concat") == 1


def test_loop_that_runs_until_the_batch_has_converged_is_refused() -> None:
    def step(params: Any, x: Any) -> Any:
        y = jax.lax.while_loop(
            lambda x: jnp.max(jnp.abs(x)) > 1, lambda x: 0.5 * x @ params["w"] / 9, x
        )
        return params, y

    params = {"w": random(6, 6)}
    module, args = normalized(Program(step, (params, random(8, 6)), ()))
    with pytest.raises(MicrobatchError, match=r"stablehlo.while.* needs the whole batch at once"):
        split(module, 2)
    assert_close(run_split(split(module, 1), args), run_module(module, args))


def test_a_donated_argument_keeps_its_alias_and_a_cut_one_loses_it() -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(forward(p, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    module, _ = normalized(Program(step, (PARAMETERS, random(8, 6))))
    result = split(module, 2)
    main = main_function(result.operation)
    attrs = arg_attrs(main)
    assert "tf.aliasing_output" in attrs[0] and "tf.aliasing_output" not in attrs[2]
    assert [str(a.type) for a in body(main).arguments][2] == "tensor<2x4x6xf64>"
    assert len(terminator(main).operands) == 3


def test_second_run_changes_nothing() -> None:
    module, _ = table("mlp")
    once = split(module, 2)
    assert str(split(once, 2)) == str(once)


# ---- refusals -----------------------------------------------------------------------------------


def test_batch_norm_is_refused_with_both_ops() -> None:
    module, _ = table("mlp_batch_norm")
    with pytest.raises(MicrobatchError, match="whole batch") as caught:
        split(module, 2)
    assert caught.value.code == "SHARDC-140"
    assert "programs.py" in str(caught.value.where)
    assert "microbatches=1" in str(caught.value)


def test_contrastive_loss_is_refused() -> None:
    def step(params: Any, x: Any, y: Any) -> Any:
        def loss_fn(params: Any) -> Any:
            logits = forward(params, x) @ forward(params, y).T
            return -jnp.mean(jnp.diag(jax.nn.log_softmax(logits)))

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads), loss

    module, args = normalized(Program(step, (PARAMETERS, random(8, 6), random(8, 6, seed=4))))
    with pytest.raises(MicrobatchError) as caught:
        split(module, 2)
    assert caught.value.code == "SHARDC-140"
    assert_close(run_split(split(module, 1), args), run_module(module, args))


def test_batch_that_does_not_divide() -> None:
    module, _ = normalized(build("mlp", "float64", 30))
    with pytest.raises(MicrobatchError, match=r"size 30, does not divide into 8") as caught:
        split(module, 8)
    assert caught.value.code == "SHARDC-142"
    assert caught.value.help == "use microbatches=6 or 10, or pad the batch to 32"


def test_no_batch_argument() -> None:
    def step(params: Any, rate: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.sum((p["w"] @ p["v"]) ** 2))(params)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), loss

    module, args = normalized(Program(step, (PARAMETERS, np.float64(0.1))))
    with pytest.raises(MicrobatchError, match="no argument") as caught:
        split(module, 2)
    assert caught.value.code == "SHARDC-141"
    assert_close(run_split(split(module, 1), args), run_module(module, args))


def test_batch_arguments_without_a_common_dim() -> None:
    module, _ = table("mlp")
    with pytest.raises(MicrobatchError, match="no dim of the same size"):
        split(module, 2, (0, 10))
    with pytest.raises(MicrobatchError, match="there is no argument 99"):
        split(module, 2, (99,))


def test_rows_are_sorted_and_searched_in_parts() -> None:
    """The comparators use constants from outside; the searches call libraries row by row."""

    def step(w: jax.Array, x: jax.Array) -> Any:
        def loss_fn(w: jax.Array) -> jax.Array:
            y = jnp.sort(x @ w)[:, ::-1] + jnp.argsort(x @ w)
            best, _ = jax.lax.top_k(y, 2)
            return jnp.mean(best) + jnp.mean(jax.lax.approx_max_k(y, 2)[0] ** 2)

        loss, gradient = jax.value_and_grad(loss_fn)(w)
        return w - 0.1 * gradient, loss

    random = np.random.default_rng(0)
    found = check(step, random.normal(size=(6, 5)), random.normal(size=(8, 6)))
    assert {
        get_str(op, PHASE) for op in ops(main_function(found.operation)) if "sort" in op.name
    } == {"body"}
