"""A plan that was made with requested shardings says so itself, and takes no others."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.cli import main
from shardc.errors import ShardcError

MESH = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
PIPELINE: dict[str, Any] = {
    "cluster": "cpu8",
    "stages": 2,
    "microbatches": 2,
    "schedule": "gpipe",
    "mesh": {"x": 2},
}
X = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
STACK = np.stack([np.eye(16, dtype=np.float32) / n for n in range(2, 6)])


def scanned(w: Any, x: Any) -> Any:
    """A training step of four layers in a loop."""

    def loss(w: Any) -> Any:
        hidden, _ = jax.lax.scan(lambda h, layer: (jnp.tanh(h @ layer), None), x, w)
        return jnp.mean(hidden**2)

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value


def assert_runs(step: Any, w: Any) -> None:
    for got, want in zip(step(w, X), jax.jit(scanned)(STACK, X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["by a pattern", "by the array"])
def test_a_plan_says_what_was_requested_for_it(asked: str, tmp_path: Path) -> None:
    """A stack split along the layers is held whole by both stages; without the request each stage
    has rows of its own, and the plan did not fit its own program."""
    shardings, w = ({"w": P("x")}, STACK) if asked == "by a pattern" else (None, on_mesh())
    made = shardc.jit(scanned, shardings=shardings, **PIPELINE)
    plan = made.lower(w, X).plan().plan
    assert [(each.argument, each.words) for each in plan.requested] == [(0, "x, -, -")]
    plan.save(tmp_path / "plan.json")
    again = shardc.jit(scanned, plan=tmp_path / "plan.json")
    assert_runs(again, STACK)
    assert again.lower(STACK, X).plan().plan.requested == plan.requested
    assert_runs(shardc.jit(scanned, plan=plan, shardings={"w": P("x")}), STACK)


def on_mesh() -> jax.Array:
    return jax.device_put(STACK, NamedSharding(MESH, P("x")))


@pytest.mark.slow
def test_commands_take_such_a_plan(tmp_path: Path) -> None:
    program, plan, run = str(tmp_path / "step.mlir"), str(tmp_path / "plan.json"), CliRunner()
    shardc.export(scanned, STACK, X, path=program)
    shape = ["--stages", "2", "--microbatches", "2", "--schedule", "gpipe", "--mesh", "x=2"]
    asked = ["--cluster", "cpu8", "--sharding", "w=x,-,-"]
    commands = [
        ["plan", program, *shape, *asked, "-o", plan],
        ["run", program, "--plan", plan, "--check", "--devices", "4"],
        ["compile", program, "--plan", plan, "-o", str(tmp_path / "out")],
        ["lint", program, "--plan", plan, *asked],
        ["explain", plan, "tanh", "--program", program],
    ]
    for command in commands:
        done = run.invoke(main, command)
        assert done.exit_code == 0, (command, done.output)


def stepped(spec: P | None) -> Any:
    """A training step of one layer, with its product constrained."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            product = x @ w
            if spec is not None:
                product = jax.lax.with_sharding_constraint(product, NamedSharding(MESH, spec))
            return jnp.mean(jnp.tanh(product) ** 2)

        value, gradient = jax.value_and_grad(loss)(w)
        return w - 0.1 * gradient, value

    return step


SPLIT = NamedSharding(MESH, P("x"))
WISHES: list[tuple[P | None, dict[str, Any], str]] = [
    (None, {"shardings": {"w": P("x")}}, r"shardings\['w'\] requests the sharding \[x, -\]"),
    (None, {"in_shardings": (SPLIT, None)}, r"argument 'w' requests the sharding \[x, -\]"),
    (None, {"out_shardings": (SPLIT, None)}, r"result 0 requests the sharding \[x, -\]"),
    (P("x"), {}, r"a constraint requests the sharding \[x, -\]"),
]


@pytest.mark.parametrize(("spec", "wish", "words"), WISHES)
def test_a_plan_that_was_made_otherwise_is_refused(
    spec: P | None, wish: dict[str, Any], words: str
) -> None:
    """Wishes were dropped without a word."""
    shape: dict[str, Any] = {"mesh": {"x": 2}, "stages": 1, "microbatches": 1}
    own = None if spec is None else P()
    made = shardc.jit(stepped(own), cluster="cpu8", **shape)
    plan = made.lower(STACK[0], X).plan().plan  # which splits nothing so small
    with pytest.raises(ShardcError, match=words) as caught:
        shardc.jit(stepped(spec), plan=plan, **wish)(STACK[0], X)
    assert caught.value.code == "SHARDC-204"


def test_other_requests_than_those_of_the_plan_contradict_it() -> None:
    made = shardc.jit(scanned, shardings={"w": P("x")}, **PIPELINE)
    plan = made.lower(STACK, X).plan().plan
    with pytest.raises(ShardcError, match=r"shardings\['w'\] wants .* and the plan as") as caught:
        shardc.jit(scanned, plan=plan, shardings={"w": P(None, "x")})(STACK, X)
    assert caught.value.code == "SHARDC-204"
    with pytest.raises(ShardcError, match=r"\[x, -, -\] of argument 0 \(shard") as caught:
        shardc.jit(lambda w, x: x * w, plan=plan)(1.0, X)
    assert caught.value.code == "SHARDC-200"


@pytest.mark.parametrize("words", ["q,-,-", "x*x,-,-", "x,-,-,x"])
def test_a_request_that_was_edited_is_refused(words: str) -> None:
    made = shardc.jit(scanned, shardings={"w": P("x")}, **PIPELINE)
    plan = made.lower(STACK, X).plan().plan
    edited = (msgspec.structs.replace(plan.requested[0], words=words),)
    given = msgspec.structs.replace(plan, requested=edited)
    with pytest.raises(ShardcError, match="which this program or the plan's mesh does not have"):
        shardc.jit(scanned, plan=given)(STACK, X)


@pytest.mark.slow
def test_where_arrays_lie_is_no_matter_for_a_plan() -> None:
    made = shardc.jit(scanned, **PIPELINE)
    plan = made.lower(STACK, X).plan().plan
    assert_runs(shardc.jit(scanned, plan=plan), on_mesh())
