"""`shardc.jit` where the caller has set a mesh: traced under it, run outside of it."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.errors import PlanError

W, X = np.eye(8, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(8, 8) / 64


def mesh_of(size: int, kind: AxisType = AxisType.Auto) -> Mesh:
    return Mesh(jax.devices()[:size], ("data",), axis_types=(kind,))


def with_mesh(mesh: Mesh) -> AbstractContextManager[Any]:
    """`with mesh:`, as older programs have it."""
    warnings.filterwarnings("ignore", "`with mesh:`", DeprecationWarning)
    return mesh


CONTEXTS: list[Callable[[Mesh], AbstractContextManager[Any]]] = [jax.set_mesh, with_mesh]


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        hidden = jax.lax.with_sharding_constraint(jnp.tanh(x @ params["a"]), P("data"))
        return jnp.mean((hidden @ params["b"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


@pytest.mark.parametrize("context", CONTEXTS, ids=["set_mesh", "with"])
@pytest.mark.parametrize("size", [1, 4])
def test_constraints_for_the_mesh_in_context_hold(
    size: int, context: Callable[[Mesh], AbstractContextManager[Any]]
) -> None:
    """Those for one device say nothing: then the other devices are used, too."""
    mesh = mesh_of(size)
    sharded = shardc.jit(step, stages=1, microbatches=1)
    with warnings.catch_warnings(), context(mesh):
        params = jax.device_put({"a": W, "b": W}, NamedSharding(mesh, P()))
        for _ in range(2):
            params, loss = sharded(params, X)
        gathered = shardc.gather(params)
        want, want_loss = jax.jit(step)({"a": W, "b": W}, X)
        want, want_loss = jax.jit(step)(want, X)
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    np.testing.assert_allclose(gathered["a"], want["a"], rtol=1e-5, atol=1e-6)
    axes = (("data", 4),) if size == 4 else (("x", 8),)
    assert sharded.plan.stages[0].mesh.axes == axes
    assert sharded.cache_info().programs == 1


def test_a_pipeline_runs_under_a_mesh_of_all_devices() -> None:
    sharded = shardc.jit(
        lambda p, x: step(p, x)[1], stages=1, microbatches=2, devices=jax.devices()[:2]
    )
    with jax.set_mesh(mesh_of(2)):
        loss = sharded({"a": W, "b": W}, X)
        key = shardc.jit(jax.random.split, stages=1)(jax.random.key(0))
    np.testing.assert_allclose(loss, jnp.mean((jnp.tanh(X)) ** 2), rtol=1e-5)
    assert np.array_equal(
        jax.random.key_data(key), jax.random.key_data(jax.random.split(jax.random.key(0)))
    )


def test_explicit_axes_of_one_device_say_nothing() -> None:
    with jax.set_mesh(mesh_of(1, AxisType.Explicit)):
        got = shardc.jit(lambda w, x: jnp.tanh(x @ w), stages=1)(W, X)
    np.testing.assert_allclose(got, np.tanh(X), rtol=1e-5)


def test_another_mesh_in_context_is_another_trace() -> None:
    sharded = shardc.jit(step, stages=1, microbatches=1)
    found = []
    for size in (2, 4):
        with jax.set_mesh(mesh_of(size)):
            sharded({"a": W, "b": W}, X)
        found.append(sharded.plan.stages[0].mesh.axes)
    assert found == [(("data", 2),), (("data", 4),)]


def layered(params: Any, x: Any) -> Any:
    """A step without constraints."""

    def loss(params: Any) -> Any:
        hidden = x
        for name in ("a", "b"):
            hidden = jnp.tanh(hidden @ params[name])
        return jnp.mean(hidden**2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def test_explicit_axes_that_split_nothing_leave_the_pipeline_to_the_planner() -> None:
    """`jax.make_mesh` has explicit axes by default: JAX then types every value as replicated."""
    mesh = jax.make_mesh((8,), ("data",))
    assert mesh.axis_types == (AxisType.Explicit,)
    sharded = shardc.jit(layered, stages=2)
    want = params = {"a": W, "b": W}
    with jax.set_mesh(mesh):
        for _ in range(2):
            params, loss = sharded(params, X)
    for _ in range(2):
        want, want_loss = jax.jit(layered)(want, X)
    assert sharded.plan.num_stages == 2
    assert [stage.mesh.shape for stage in sharded.plan.stages] != [(8,), (8,)]
    assert not any("data" in dict(stage.mesh.axes) for stage in sharded.plan.stages)
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    gathered = shardc.gather(params)
    for name in want:
        np.testing.assert_allclose(gathered[name], want[name], rtol=1e-5, atol=1e-6)


def test_explicit_axes_that_split_a_value_are_kept() -> None:
    mesh = mesh_of(4, AxisType.Explicit)
    sharded = shardc.jit(layered, stages=2)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("data")))
        _, loss = sharded({"a": W, "b": W}, x)
    assert [stage.mesh.axes for stage in sharded.plan.stages] == [(("data", 4),)] * 2
    np.testing.assert_allclose(loss, jax.jit(layered)({"a": W, "b": W}, X)[1], rtol=1e-5)


def test_explicit_axes_with_requested_replication_are_kept() -> None:
    mesh = mesh_of(4, AxisType.Explicit)
    sharded = shardc.jit(layered, stages=1, in_shardings=(NamedSharding(mesh, P()), None))
    with jax.set_mesh(mesh):
        sharded({"a": W, "b": W}, X)
    assert [stage.mesh.axes for stage in sharded.plan.stages] == [(("data", 4),)]


def test_more_stages_than_meshes_of_the_context_fit_are_refused_by_its_name() -> None:
    mesh = jax.make_mesh((8,), ("data",))
    sharded = shardc.jit(layered, stages=2)
    x = jax.device_put(X, NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh), pytest.raises(PlanError) as error:
        sharded({"a": W, "b": W}, x)
    assert error.value.code == "SHARDC-101"
    assert "(data=8, the mesh of the shardings in the program)" in error.value.message
    assert "jax.set_mesh" in (error.value.help or "")
