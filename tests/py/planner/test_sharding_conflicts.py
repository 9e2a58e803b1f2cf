"""Shardings that the user asks for, from the call to the arrays that come back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.cluster import Cluster, Device, Level
from shardc.errors import InfeasibleError, ShardcError

MESH = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
HALF = jax.make_mesh(
    (2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4]
)


def on(mesh: jax.sharding.Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def lies_as(array: jax.Array, *spec: Any) -> bool:
    """Whether `array` lies so on its own mesh."""
    assert isinstance(array.sharding, NamedSharding)
    return array.sharding.is_equivalent_to(on(array.sharding.mesh, *spec), array.ndim)


def data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    params = {"in": {"kernel": normal(32, 64)}, "out": {"kernel": normal(64, 32)}}
    return params, normal(16, 32), normal(16, 32)


def step_on(mesh: jax.sharding.Mesh | None) -> Any:
    """A training step; on a mesh with its hidden activations constrained."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.relu(x @ params["in"]["kernel"])
        if mesh is not None:
            hidden = jax.lax.with_sharding_constraint(hidden, on(mesh, "data", "model"))
        return jnp.mean((hidden @ params["out"]["kernel"] - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


def assert_equal(got: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        (MESH, {"stages": 1, "microbatches": 2}),
        (HALF, {"stages": 2, "microbatches": 2}),
        (MESH, {"stages": 1, "microbatches": 1, "lowering": "xla"}),
    ],
    ids=["one stage", "two stages", "xla"],
)
def test_constraints_and_in_and_out_shardings_hold(
    mesh: jax.sharding.Mesh, options: dict[str, Any]
) -> None:
    """The stages' meshes are the user's, and numbers stay those of jax.jit."""
    split = {"in": {"kernel": on(mesh, "model")}, "out": None}
    sharded = shardc.jit(
        step_on(mesh),
        donate_argnums=0,
        in_shardings=(split, on(mesh, "data"), None),
        out_shardings=({"in": None, "out": {"kernel": on(mesh, None, "data")}}, None),
        **options,
    )
    params, x, y = data()
    expected = jax.jit(step_on(None))(params, x, y)
    plan = sharded.lower(params, x, y).plan().plan
    assert {stage.mesh.axes for stage in plan.stages} == {tuple(mesh.shape.items())}
    got = sharded(jax.tree.map(jnp.asarray, params), x, y)
    assert_equal(got, expected)
    assert lies_as(got[0]["in"]["kernel"], "model")  # as it came, so will it come again
    assert lies_as(got[0]["out"]["kernel"], None, "data")
    assert_equal(sharded(got[0], x, y), jax.jit(step_on(None))(expected[0], x, y))


def test_what_is_constrained_lies_so_in_the_program() -> None:
    planned = shardc.jit(step_on(MESH), stages=1, microbatches=1).lower(*data()).plan()
    found = [
        op.results[0].dims
        for function in planned.plan.shardings.values()
        for op in function.ops
        if op.operands == op.results and len(op.results) == 1
    ]
    assert (("data",), ("model",)) in found


@pytest.mark.slow
def test_constraints_before_and_after_the_microbatches_hold() -> None:
    """On the state, on what is made of it before the step, and on sums over the microbatches."""
    inner = step_on(MESH)

    def step(params: Any, x: Any, y: Any) -> Any:
        half = jax.lax.with_sharding_constraint(params["in"]["kernel"] * 0.5, on(MESH, "data"))
        new, loss = inner(params, x, y)
        put = on(MESH, "data", "model")
        new = jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w * 2, put), new)
        return new, loss, half

    arguments = data()
    sharded = shardc.jit(step, stages=1, microbatches=4)
    planned = sharded.lower(*arguments).plan()
    assert len(planned.sharding_prices()) == 3
    assert_equal(sharded(*arguments), jax.jit(step)(*arguments))


@pytest.mark.slow
def test_patterns_and_arrays_that_arrive_in_parts() -> None:
    params, x, y = data()
    patterns = {"in.kernel": P(None, "model"), "out.kernel": P(("model", "data"))}
    sharded = shardc.jit(
        step_on(None), donate_argnums=0, mesh={"data": 2, "model": 4}, shardings=patterns
    )
    state, _ = sharded(jax.tree.map(jnp.asarray, params), x, y)
    assert lies_as(state["in"]["kernel"], None, "model")
    assert lies_as(state["out"]["kernel"], ("model", "data"))

    lies = {
        "in": {"kernel": on(MESH, None, "model")},
        "out": {"kernel": on(MESH, ("model", "data"))},
    }
    state = jax.device_put(params, lies)
    loss = shardc.jit(lambda p, x: jnp.sum(x @ p["in"]["kernel"] @ p["out"]["kernel"]))
    planned = loss.lower(state, x).plan()
    assert planned.plan.stages[0].mesh.axes == (("data", 2), ("model", 4))
    arguments = {spec.value: spec.sharding for p in planned.executable.programs for spec in p.args}
    assert arguments["arg0"].dims == ((), ("model",))
    assert arguments["arg1"].dims == (("model", "data"), ())


@pytest.mark.slow
def test_patterns_ask_besides_arrays_in_parts() -> None:
    """Each of the two declared the mesh, which MLIR refuses."""
    params, x, y = data()
    step = step_on(None)
    sharded = shardc.jit(
        step, mesh={"data": 2, "model": 4}, shardings={"in.kernel": P(None, "model")}
    )
    got = sharded(params, *jax.device_put((x, y), on(MESH, "data")))
    assert lies_as(got[0]["in"]["kernel"], None, "model")
    assert_equal(got, jax.jit(step)(params, x, y))


def test_a_mesh_in_context_does_not_disturb() -> None:
    """Its axes are explicit by default, so where arrays lie is part of their types."""
    mesh = jax.make_mesh((2, 4), ("rows", "columns"))
    w, x = np.ones((8, 16), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8)
    with jax.set_mesh(mesh):
        arguments = jax.device_put(w, P(None, "columns")), jax.device_put(x, P("rows"))
        got = shardc.jit(lambda w, x: jnp.tanh(x @ w))(*arguments)
    assert lies_as(got, "rows", "columns")
    assert_equal(got, np.tanh(x @ w))


def test_one_value_may_come_and_go_in_two_shardings() -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    gather = shardc.jit(lambda x: (x, x), in_shardings=on(MESH, "data"), out_shardings=on(MESH))
    one, two = gather(x)
    assert one.sharding.is_fully_replicated and two.sharding.is_fully_replicated
    assert_equal(one, x)


def test_what_does_not_divide_is_refused_and_not_dropped() -> None:
    def halve(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 0.5, on(MESH, "model"))

    with pytest.raises(ShardcError, match="6 does not divide into 4 parts") as caught:
        shardc.jit(halve).lower(np.ones(6, np.float32)).plan()
    assert caught.value.code == "SHARDC-203"
    assert "test_sharding_conflicts.py" in str(caught.value.where)


def test_microbatches_must_leave_something_to_split() -> None:
    step = shardc.jit(step_on(MESH), stages=1, microbatches=16)
    with pytest.warns(shardc.RequestWarning, match="8 .* 16: 16 microbatches leave 1 rows"):
        assert step.lower(*data()).plan().plan.num_microbatches == 8


def test_another_mesh_contradicts_a_constraint() -> None:
    with pytest.raises(ShardcError, match="data=2, model=4") as caught:
        shardc.jit(step_on(MESH), mesh=(8,)).lower(*data()).plan()
    assert caught.value.code == "SHARDC-204"


def test_a_constraint_has_its_price() -> None:
    """A replicated product where the batch could be split is dear; a wish that agrees is free."""
    device = Device("test", 1 << 30, {"default": 1e9}, 1e30)
    cluster = Cluster("test", device, (Level("link", 8, 1e8, 0.0),))

    def double(w: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, on(MESH))

    step = shardc.jit(
        double, cluster=cluster, stages=1, microbatches=1, in_shardings=(None, on(MESH, "data"))
    )
    w, x = np.ones((64, 128), np.float32), np.ones((32, 64), np.float32)
    prices = step.lower(w, x).plan().sharding_prices()
    (gather_s,) = [price for name, price in prices.items() if "test_sharding_conflicts.py" in name]
    assert gather_s == pytest.approx(7 / 8 * 32 * 128 * 4 / 1e8, rel=0.05)
    assert prices["argument 'x'"] == pytest.approx(0.0, abs=gather_s / 30)


@pytest.mark.slow
def test_a_constraint_that_does_not_fit_into_memory_is_named() -> None:
    w = np.ones((64, 64), np.float32)
    step = shardc.jit(
        lambda w, x: x @ w,
        stages=1,
        microbatches=1,
        memory_limit_bytes=14_000,
        mesh={"data": 2, "model": 4},
        shardings={"w": P()},
    )
    with pytest.raises(InfeasibleError, match=r"without the request of shardings\['w'\]"):
        step.lower(w, np.ones((8, 64), np.float32)).plan()
