"""Every argument of `jax.jit`: kept, or refused with a code."""

import inspect
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.api.request import plan_options
from shardc.api.stages import Lowered
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.importer.from_jax import import_function

MESH = Mesh(jax.devices()[:2], ("data",))
X = np.arange(8, dtype=np.float32)
HOST = "pinned_host"


def on(kind: str, *spec: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec), memory_kind=kind)


def sharded(fun: Any, **options: Any) -> Any:
    return shardc.jit(fun, devices=jax.devices()[:2], stages=1, **options)


def test_every_argument_of_jax_jit_is_one_of_shardc_jit() -> None:
    own = inspect.signature(shardc.jit).parameters
    for name, parameter in inspect.signature(jax.jit).parameters.items():
        assert name in own and own[name].kind == parameter.kind


def test_what_jax_has_dropped_is_no_argument() -> None:
    for jit in (jax.jit, shardc.jit):
        with pytest.raises(TypeError, match="abstracted_axes"):
            jit(lambda x: x, abstracted_axes={0: "n"})  # type: ignore[call-overload]


def test_shardings_may_hold_for_parts_of_pytrees() -> None:
    f = sharded(
        lambda t, x: (t["a"] + x, t["b"] * 2),
        in_shardings=({"a": on("device", "data"), "b": None}, None),
        out_shardings=(on("device", "data"), on("device")),
    )
    one, two = f({"a": X, "b": X}, X)
    assert one.sharding.is_equivalent_to(on("device", "data"), 1)
    assert two.sharding.is_fully_replicated
    np.testing.assert_array_equal(one, 2 * X)


def test_a_sharding_on_one_device_says_nothing() -> None:
    """As constraints written for one device; `device=` asks for one."""
    f = sharded(lambda x: x * 2, out_shardings=SingleDeviceSharding(jax.devices()[1]))
    np.testing.assert_array_equal(f(X), 2 * X)


def test_devices_that_a_sharding_names_are_run_on_or_it_is_said() -> None:
    far = NamedSharding(Mesh(jax.devices()[4:6], ("data",)), P("data"))
    with pytest.raises(InputError, match="over the devices 4-5, and the function runs on 0-1") as e:
        sharded(lambda x: x * 2, in_shardings=far)(X)
    assert e.value.code == "SHARDC-205"
    with pytest.warns(shardc.RequestWarning, match="shardc chooses the devices"):
        got = shardc.jit(lambda x: x * 2, stages=1, out_shardings=far)(X)
    np.testing.assert_array_equal(got, 2 * X)


@pytest.mark.parametrize("which", ["in_shardings", "out_shardings"])
def test_layouts_in_memory_are_refused(which: str) -> None:
    wanted = Format(Layout((1, 0)), on("device", "data"))
    with pytest.raises(InputError, match="in the layout") as caught:
        sharded(lambda x: x * 2, **{which: wanted})(np.ones((4, 4), np.float32))
    assert caught.value.code == "SHARDC-205"


@pytest.mark.parametrize("microbatches", [1, 2])
def test_state_in_the_host_memory_comes_back_there(microbatches: int) -> None:
    """Optimizer states are kept there, brought in and put back by the step itself."""
    x = np.ones((4, 8), np.float32)

    def step(w: Any, x: Any) -> Any:
        own = jax.device_put(w, jax.memory.Space.Device)
        loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w - 1) ** 2))(own)
        return jax.device_put(own - grad, jax.memory.Space.Host), loss

    def start() -> jax.Array:
        return jax.device_put(jnp.eye(8), on(HOST))

    f = sharded(step, donate_argnums=0, microbatches=microbatches)
    w, want = start(), start()
    for _ in range(2):
        before = w
        (w, loss), (want, _) = f(w, x), jax.jit(step)(want, x)
        assert w.sharding.memory_kind == want.sharding.memory_kind == HOST
        assert loss.sharding.memory_kind == "device"
        np.testing.assert_allclose(w, want, rtol=1e-5, atol=1e-6)
        assert before.is_deleted()
    assert f.cache_info()[1:3] == (1, 1)
    assert f.lower(w, x).compile().input_shardings[0][0].memory_kind == HOST


@pytest.mark.parametrize("fun", [lambda x: x * 2, lambda x: x], ids=["computed", "passed on"])
@pytest.mark.parametrize("options", [{}, {"in_shardings": on(HOST)}], ids=["open", "asked"])
def test_memory_kinds_of_arguments_go_on_to_results(fun: Any, options: Any) -> None:
    x = jax.device_put(X, on(HOST))
    got, want = sharded(fun, **options)(x), jax.jit(fun, **options)(x)
    assert got.sharding.memory_kind == want.sharding.memory_kind == HOST
    np.testing.assert_array_equal(got, want)
    assert not x.is_deleted()


def test_memory_kinds_of_results_may_be_asked_for() -> None:
    f = sharded(lambda x: x * 2, out_shardings=on(HOST, "data"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", shardc.RequestWarning)
        got = f(X)
    assert got.sharding.is_equivalent_to(on(HOST, "data"), 1)
    assert f.lower(X).compile().output_shardings.memory_kind == HOST
    np.testing.assert_array_equal(got, 2 * X)


def test_a_memory_inside_the_step_is_left_out_and_said_so() -> None:
    """JAX writes it for platforms where the device and the host have memories of their own."""

    def step(x: Any) -> Any:
        return jax.device_put(jax.device_put(jnp.sin(x), on(HOST)), on("device")) * 2

    imported = import_function(step, (X,), platform="cuda")
    assert str(imported.module).count("annotate_device_placement") == 2
    options = plan_options(stages=1, microbatches=1)
    lowered = Lowered(imported, Cluster.load("cpu8"), (), options)
    with pytest.warns(shardc.RequestWarning, match=r"1 times, first at .*arguments\.py"):
        text = lowered.plan().as_text()
    assert "annotate_device_placement" not in text
    np.testing.assert_allclose(sharded(step)(X), 2 * np.sin(X), rtol=1e-6)


@pytest.mark.parametrize("keep_unused", [False, True])
def test_unused_arguments_stay_arguments_and_go_nowhere(keep_unused: bool) -> None:
    """As without `keep_unused` in `jax.jit`; with it, JAX sends them to the device."""
    f = sharded(lambda x, unused: 2 * x, keep_unused=keep_unused, donate_argnums=(0, 1))
    x, unused = jnp.asarray(X), jnp.asarray(X)
    lowered = f.lower(x, unused)
    assert len(jax.tree.leaves(lowered.args_info)) == 2
    (_, place), _ = lowered.compile().input_shardings
    assert place is None
    np.testing.assert_array_equal(f(x, unused), 2 * X)
    assert x.is_deleted() and unused.is_deleted()  # donated is donated, used or not
    # Another shape of what is not used is another call, as for JAX.
    f(jnp.asarray(X), jnp.zeros((2, 2)))
    assert f.cache_info().traces == 2


INLINES: list[Any] = [False, True, *jax.Inline]


@pytest.mark.parametrize("inline", INLINES, ids=str)
def test_inline_says_what_becomes_of_it_inside_another_transformation(inline: Any) -> None:
    def triple(x: Any) -> Any:
        return 3 * x

    texts = []
    for jit in (jax.jit, sharded):
        inner = jit(triple, inline=inline)
        outer = jax.jit(lambda x, inner=inner: inner(x) + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", shardc.RequestWarning)
            traced = outer.trace(X)
        texts.append((str(traced.jaxpr), traced.lower().as_text()))
        np.testing.assert_array_equal(outer(X), 3 * X + 1)
    assert texts[0] == texts[1]
    assert ("call @triple" in texts[1][1]) == (texts[0][1].count("func.func") > 1)


def test_inlining_is_no_matter_for_a_call_of_its_own() -> None:
    plain, inlined = (sharded(lambda x: jnp.sin(x), inline=inline) for inline in (False, True))
    assert plain.lower(X).as_text() == inlined.lower(X).as_text()
