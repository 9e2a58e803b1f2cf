"""`shardc.jit` is called and behaves as `jax.jit`, whatever arguments it is given."""

import functools
import os
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import shardc
from shardc.api import function, jax_version, stages
from shardc.api.planning import find
from shardc.errors import ClusterError, InputError, RequestWarning
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import StageSpec
from tests.py.table import CLUSTER

DEVICES = jax.devices()[:2]
sharded = functools.partial(shardc.jit, devices=DEVICES, stages=1, microbatches=1)


def step(state: dict[str, Any], x: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    def loss_fn(w: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ w) - 1) ** 2)

    loss, gradient = jax.value_and_grad(loss_fn)(state["w"])
    return {"w": state["w"] - 0.1 * gradient, "count": state["count"] + 1}, loss


def arguments() -> tuple[dict[str, Any], np.ndarray]:
    random = np.random.default_rng(0)
    w = random.standard_normal((8, 4), np.float32)
    return {"w": w, "count": 0}, random.standard_normal((16, 8), np.float32)


def assert_same(got: Any, want: Any) -> None:
    """Equal structure, types (weak ones too) and values up to the order of additions."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert isinstance(g, jax.Array)
        assert (g.shape, g.dtype, g.aval.weak_type) == (w.shape, w.dtype, w.aval.weak_type)
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-5, atol=1e-6)


def test_three_steps_give_the_same_and_trace_once() -> None:
    traces = []

    def counted(state: Any, x: Any) -> Any:
        traces.append(1)
        return step(state, x)

    f, g = sharded(counted, donate_argnums=0), jax.jit(step)
    (state, x), (want, _) = arguments(), arguments()
    for _ in range(3):
        previous = state
        state, loss = f(state, x)
        want, want_loss = g(want, x)
        assert_same((state, loss), (want, want_loss))
    assert previous["w"].is_deleted()
    # Python's 0 is weakly typed, and so is the count that comes back: no second trace.
    assert len(traces) == 1
    f({"w": state["w"], "count": np.int32(3)}, x)
    assert len(traces) == 2


def test_ahead_of_time_stages_show_what_they_know() -> None:
    args = arguments()
    lowered = sharded(step, mesh=(2,)).lower(*args)
    assert "stablehlo.dot_general" in lowered.as_text()
    assert lowered.out_tree == jax.tree.structure((args[0], 0))
    assert jax.tree.map(lambda x: x.shape, lowered.out_info) == ({"w": (8, 4), "count": ()}, ())
    assert [x.donated for x in jax.tree.leaves(lowered.args_info)] == [False] * 3
    planned = lowered.plan()
    assert isinstance(planned, stages.Planned)
    assert planned.plan.stages[0].mesh.shape == (2,)
    assert "1 stage, 1 microbatch" in planned.explain()
    assert "func.func" in planned.as_text(0)
    compiled = planned.compile()
    assert "ENTRY" in compiled.as_text(stage=0)
    assert set(compiled.hlo_texts()) == {p.name for p in compiled.executable.programs}
    assert set(compiled.cost_analysis()) == set(compiled.memory_analysis())
    assert compiled.plan is planned.plan
    assert_same(compiled(*args), jax.jit(step)(*args))
    with pytest.raises(InputError, match="was compiled for") as caught:
        compiled(args[1], args[0])
    assert caught.value.code == "SHARDC-263"


def test_a_compiled_step_takes_no_part_of_a_python_number() -> None:
    """Such as 3 of 3.7 or "3", where it was compiled for an integer."""
    x = np.arange(4.0, dtype=np.float32)
    compiled = sharded(lambda x, n: x * n).lower(x, 2).plan().compile()
    assert np.array_equal(compiled(x, 3), 3 * x)
    for wrong in (3.7, "3", 2j, 1 << 40):
        with pytest.raises(InputError) as caught:
            compiled(x, wrong)
        assert caught.value.code == "SHARDC-263"


def test_decorators_methods_static_and_keyword_arguments() -> None:
    class Model:
        scale = 3.0

        @functools.partial(sharded, static_argnums=(0, 2), static_argnames="shift")
        def __call__(self, x: jax.Array, power: int, *, shift: float = 0.0) -> jax.Array:
            return self.scale * x**power + shift

    model, x = Model(), np.arange(4.0, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(model(x, 2)), 3 * x**2)
    np.testing.assert_allclose(np.asarray(model(x, 3, shift=1.0)), 3 * x**3 + 1)

    @shardc.jit(devices=DEVICES)
    def named(*, a: jax.Array, b: jax.Array) -> jax.Array:
        """Adds."""
        return a + b

    assert (named.__name__, named.__doc__) == ("named", "Adds.")
    np.testing.assert_array_equal(np.asarray(named(b=x, a=2 * x)), 3 * x)
    assert named.eval_shape(a=x, b=x).shape == (4,)


def test_random_keys_go_in_and_come_out() -> None:
    def draw(key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        key, own = jax.random.split(key)
        return key, x + jax.random.normal(own, x.shape)

    x = np.zeros((4, 2), np.float32)
    f, key, want = sharded(draw, donate_argnums=0), jax.random.key(1), jax.random.key(1)
    for _ in range(2):
        key, drawn = f(key, x)
        want, want_drawn = jax.jit(draw)(want, x)
        assert key.dtype == want.dtype
        assert np.array_equal(jax.random.key_data(key), jax.random.key_data(want))
        np.testing.assert_allclose(np.asarray(drawn), np.asarray(want_drawn), rtol=1e-6)


def test_numbers_of_a_key_that_a_plan_splits_come_out_as_a_key() -> None:
    """Random bits of the generator "rbg" are computed whole, and their next state with them."""

    def drop(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        w, key = state
        key, own = jax.random.split(key)
        loss, gradient = jax.value_and_grad(
            lambda w: jnp.mean((jnp.tanh(x @ w) * jax.random.bernoulli(own, 0.9, x.shape)) ** 2)
        )(w)
        return (w - 0.1 * gradient, key), loss

    def start() -> Any:
        return jnp.ones((16, 16)) / 16, jax.random.key(0, impl="rbg")

    x = np.ones((16, 16), np.float32)
    f = shardc.jit(drop, donate_argnums=0, stages=1, microbatches=2, cluster=CLUSTER, mesh=(2, 2))
    state, want = start(), start()
    for _ in range(2):
        (state, loss), (want, want_loss) = f(state, x), jax.jit(drop)(want, x)
        assert np.array_equal(jax.random.key_data(state[1]), jax.random.key_data(want[1]))
        np.testing.assert_allclose(loss, want_loss, rtol=1e-6)


def test_what_the_caller_keeps_stays_readable() -> None:
    state, x = arguments()
    state = jax.tree.map(jnp.asarray, state)
    new_state, _ = sharded(step)(state, x)
    assert not state["w"].is_deleted()
    mixed = shardc.gather((state, new_state))
    assert np.isfinite(float((mixed[0]["w"] + mixed[1]["w"]).sum()))


def test_a_plan_is_followed_and_may_come_from_a_file(tmp_path: Path) -> None:
    args = arguments()
    plan = sharded(step, mesh=(2,)).lower(*args).plan().plan
    plan.save(tmp_path / "plan.json")
    for given in (plan, tmp_path / "plan.json"):
        f = shardc.jit(step, plan=given, devices=DEVICES)
        planned = f.lower(*args).plan()
        assert msgspec.structs.replace(planned.plan, from_cache=plan.from_cache) == plan
    assert_same(f(*args), jax.jit(step)(*args))
    with pytest.raises(ClusterError) as caught:
        shardc.jit(step, plan=plan, devices=DEVICES[:1])(*args)
    assert caught.value.code == "SHARDC-101"


def test_plans_are_kept_on_disk_and_damage_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "plans"))
    planned = []

    def counting(*args: Any) -> Plan:
        planned.append(1)
        return real(*args)

    real = find.plan_program
    monkeypatch.setattr(find, "plan_program", counting)
    args = arguments()
    first = sharded(step).lower(*args).plan().plan
    again = sharded(step).lower(*args).plan().plan
    assert again.from_cache
    assert msgspec.structs.replace(again, from_cache=False) == first
    assert len(planned) == 1
    (kept,) = (tmp_path / "plans").iterdir()
    kept.write_text("{")
    with pytest.warns(RequestWarning, match="is damaged and will be replaced"):
        again = sharded(step).lower(*args).plan().plan
    assert len(planned) == 2
    assert msgspec.json.decode(kept.read_bytes(), type=Plan) == again
    # Another request is another plan.
    sharded(step, seed=1).lower(*args).plan()
    assert len(planned) == 3
    # What cannot be kept is told, and the plan is used all the same.
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(kept))
    with pytest.warns(UserWarning, match="not cached"):
        sharded(step).lower(*args).plan()


def test_the_batch_is_named_by_position() -> None:
    args = arguments()
    f = shardc.jit(step, devices=DEVICES, stages=1, microbatches=2, batch_argnums=1)
    planned = f.lower(*args).plan()
    assert planned.plan.batch_arguments == (2,)
    assert_same(f(*args), jax.jit(step)(*args))
    for wrong in (2, -3):
        with pytest.raises(InputError, match="batch_argnums") as caught:
            shardc.jit(step, devices=DEVICES, batch_argnums=wrong).lower(*args)
        assert caught.value.code == "SHARDC-186"
    with pytest.raises(InputError, match="no array with a batch dim"):
        sharded(lambda a: a + 1, batch_argnums=0).lower(np.float32(1))


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap, jax.checkpoint])
def test_inside_a_transformation_it_is_a_part_of_it(transform: Any) -> None:
    def f(x: jax.Array, n: int = 2) -> jax.Array:
        return jnp.sum(x**n)

    x, own = np.arange(3, dtype=np.float32), sharded(f, static_argnums=1)
    with pytest.warns(shardc.RequestWarning, match="'f' is called inside another") as caught:
        got = transform(lambda x: own(x, 3))(x)
    assert caught[0].filename == __file__
    assert_same(got, transform(lambda x: f(x, 3))(x))


def test_inside_a_transformation_of_something_else_it_runs() -> None:
    x, f = np.ones(4, np.float32), sharded(lambda a: a * 2)
    assert_same(jax.vmap(lambda a: a + f(x))(x), jax.vmap(lambda a: a + 2 * x)(x))


def test_functions_of_shardc_call_each_other() -> None:
    inner = sharded(lambda a, b: a @ b)
    outer = sharded(lambda a: jnp.sum(inner(a, a) ** 2))
    x = np.ones((4, 4), np.float32)
    assert_same(sharded(jax.grad(outer))(x), jax.grad(lambda a: jnp.sum((a @ a) ** 2))(x))
    assert len(inner._compiled) == 0
    assert inner.trace(x, x).jaxpr.out_avals[0].shape == (4, 4)


def test_where_to_run_can_be_said_as_to_jax() -> None:
    x = np.ones(4, np.float32)
    for options in ({"device": DEVICES[1]}, {"backend": "cpu"}):
        got = shardc.jit(lambda a: a + 1, stages=1, **options)(x)
        assert_same(got, jnp.asarray(x + 1))
    assert shardc.jit(lambda a: a + 1, device=DEVICES[1])(x).devices() == {DEVICES[1]}


def test_options_of_xla_reach_every_program() -> None:
    step = sharded(lambda a: a + 1, compiler_options={"xla_no_such_option": True})
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        step(np.ones(4, np.float32))
    same = sharded(lambda a: a + 1, compiler_options={"xla_cpu_enable_fast_math": False})
    assert_same(same(np.ones(4, np.float32)), jnp.full(4, 2, np.float32))


def test_errors_while_tracing_are_those_of_jax() -> None:
    @sharded
    def branching(x: jax.Array) -> jax.Array:
        return x if x.sum() > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        branching(np.ones(3, np.float32))
    with pytest.raises(TypeError):
        sharded(lambda x: x)("text")
    with pytest.raises(ValueError, match=r"[Hh]ash"):
        sharded(lambda x, n: x, static_argnums=1)(np.ones(3, np.float32), [1])
    with pytest.raises(ValueError, match="static"):
        sharded(lambda x, n: x, static_argnums=1)(np.ones(3, np.float32), np.ones(3))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"stages": 0}, "SHARDC-180"),
        ({"microbatches": "many"}, "SHARDC-180"),
        ({"mesh": "2x4"}, "SHARDC-180"),
        ({"mesh": (2, 0)}, "SHARDC-180"),
        ({"memory_limit_bytes": 0}, "SHARDC-180"),
        ({"memory_limit_bytes": "16GiB"}, "SHARDC-180"),
        ({"time_limit_s": -1}, "SHARDC-180"),
        ({"seed": 0.5}, "SHARDC-180"),
        ({"lowering": "llvm"}, "SHARDC-180"),
        ({"equal_layers": "bound"}, "SHARDC-180"),
        ({"early_updates": "yes"}, "SHARDC-180"),
        ({"schedule": "zigzag"}, "SHARDC-240"),
        ({"cluster": {"devices": 8}}, "SHARDC-100"),
        ({"devices": [0, 1]}, "SHARDC-180"),
        ({"devices": []}, "SHARDC-180"),
        ({"batch_argnums": "batch"}, "SHARDC-186"),
        ({"cluster": "nowhere"}, "SHARDC-100"),
        ({"plan": "nowhere.json"}, "SHARDC-200"),
        ({"device": DEVICES[0], "devices": DEVICES}, "SHARDC-185"),
        ({"backend": "cpu", "devices": DEVICES}, "SHARDC-185"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.jit(step, **options)
    assert caught.value.code == code


def test_devices_may_come_as_a_mesh_has_them() -> None:
    """`mesh.devices.flat` is an iterator: a second call of the function found it empty."""
    flat = shardc.jit(step, devices=np.array(DEVICES).reshape(2, -1).flat)
    shapes = [flat.lower(*arguments()).devices for _ in range(2)]
    assert shapes == [tuple(DEVICES)] * 2


def test_a_plan_and_a_wish_contradict_each_other() -> None:
    plan = sharded(step).lower(*arguments()).plan().plan
    with pytest.raises(InputError, match="stages=2") as caught:
        shardc.jit(step, plan=plan, stages=2)
    assert caught.value.code == "SHARDC-183"


def test_a_plan_by_hand_has_its_own_shardings() -> None:
    spec = shardc.StagesSpec(1, (StageSpec(mesh={"data": 2}),))
    with pytest.raises(InputError, match="hand-written plan and a sharding") as caught:
        shardc.jit(step, plan=spec, shardings={"*.w": jax.sharding.PartitionSpec("data")})
    assert caught.value.code == "SHARDC-183"


def test_stages_need_layers_and_auto_does_without() -> None:
    x = np.ones((8, 4), np.float32)
    # State goes in and comes out; no backward pass is known of, so all of it is forward.
    f = functools.partial(sharded, lambda state: 2 * state, donate_argnums=0)
    with pytest.warns(shardc.RequestWarning, match="the forward pass has 0 layers"):
        assert f(stages=2).lower(x).plan().plan.num_stages == 1
    assert f(stages="auto").lower(x).plan().plan.num_stages == 1


def test_stages_are_cut_where_the_only_result_needs_no_product() -> None:
    def step(weights: list[Any], x: Any) -> tuple[list[Any], Any]:
        def loss(weights: list[Any]) -> Any:
            hidden = x
            for weight in weights:
                hidden = jnp.tanh(hidden @ weight)
            return jnp.mean(hidden**2)

        grads = jax.grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], jnp.sum(x > 0)

    weights = [np.eye(4, dtype=np.float32)] * 4
    lowered = shardc.jit(step, stages=2, microbatches=2).lower(weights, np.ones((8, 4), np.float32))
    assert lowered.plan().plan.num_stages == 2


def test_an_unknown_jax_gets_the_other_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jax_version.usable_lowering("local") == "local"
    monkeypatch.setattr(jax_version, "NEWEST_TESTED", (0, 1, 0))
    with pytest.warns(UserWarning, match="newer than 0.1.0"):
        assert jax_version.usable_lowering("local") == "xla"


def test_few_programs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "MOST_COMPILED", 1)
    f = sharded(lambda x: x + 1)
    for size in (1, 2, 2):
        f(np.zeros(size, np.float32))
    assert len(f._compiled) == 1
    f.clear_cache()
    assert len(f._compiled) == 0


def test_without_jit_the_function_itself_runs() -> None:
    with jax.disable_jit():
        assert sharded(lambda x: x + 1)(1) == 2


@pytest.mark.parametrize("stages", [1, "auto"])
def test_programs_that_compute_nothing(stages: Any) -> None:
    x = np.arange(4, dtype=np.int32)
    for f in (lambda a: a, lambda a: (a, ()), lambda a: {}):
        made = shardc.jit(f, devices=DEVICES, stages=stages)
        assert_same(made(x), jax.jit(f)(x))
        assert "predicted:" in made.explain()
    for taken in (None, {}):
        assert shardc.jit(lambda a: a, devices=DEVICES, stages=stages)(taken) == taken


def test_prints_come_after_the_step_with_the_values_of_the_whole_batch(capsys: Any) -> None:
    def talking(state: dict[str, Any], x: jax.Array) -> Any:
        def loss_fn(w: jax.Array) -> jax.Array:
            y = jnp.tanh(x @ w)
            jax.debug.print("y {} of {w}", jnp.round(y[:, 0], 2), w=w.shape)
            return jnp.mean((y - 1) ** 2)

        loss, gradient = jax.value_and_grad(loss_fn)(state["w"])
        jax.debug.print("loss {:.4f}", loss)
        jax.debug.print("done")
        return {"w": state["w"] - 0.1 * gradient, "count": state["count"] + 1}, loss

    args = arguments()
    want = jax.jit(talking)(*args)
    jax.effects_barrier()
    printed = sorted(capsys.readouterr().out.splitlines())
    f = shardc.jit(talking, devices=DEVICES, stages=1, microbatches=4)
    assert_same(f(*args), want)
    assert len(printed) > 2
    assert sorted(capsys.readouterr().out.splitlines()) == printed


def test_functions_of_numpy_are_called_on_whole_values() -> None:
    shapes = set()

    def host(x: Any) -> Any:
        shapes.add(x.shape)
        return np.sort(np.asarray(x), axis=0)

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jnp.tanh(x @ w)
        return jax.pure_callback(host, jax.ShapeDtypeStruct(y.shape, y.dtype), y) @ w.T

    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    for microbatches in (1, 2):
        got = shardc.jit(f, devices=DEVICES, stages=1, microbatches=microbatches)(x, w)
        assert_same(got, jax.jit(f)(x, w))
    assert shapes == {(8, 6)}


def test_an_error_in_a_callback_loses_nothing() -> None:
    def refuse(count: Any) -> None:
        raise RuntimeError(f"enough at {count}")

    def f(x: jax.Array) -> jax.Array:
        jax.debug.callback(refuse, jnp.sum(x))
        return x + 1

    x = jnp.zeros(4, jnp.int32)
    compiled = sharded(f, donate_argnums=0).lower(x).compile()
    with pytest.raises(RuntimeError, match="enough at 0"):
        compiled(x)
    assert np.asarray(compiled.unreturned_results).tolist() == [1, 1, 1, 1]


def test_an_interrupt_on_the_way_back_to_the_user_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = sharded(lambda count: count + 1, donate_argnums=0).lower(0).compile()
    as_weak = compiled._as_weak

    def interrupted(index: int, value: jax.Array) -> jax.Array:
        os.kill(os.getpid(), signal.SIGINT)
        return as_weak(index, value)

    monkeypatch.setattr(compiled, "_as_weak", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(0)
    assert compiled.unreturned_results == 1
    monkeypatch.undo()
    assert compiled(1) == 2
    assert compiled.unreturned_results is None


def test_a_print_inside_a_loop_is_left_out_and_said_so() -> None:
    def f(x: jax.Array) -> jax.Array:
        def body(_: int, x: jax.Array) -> jax.Array:
            jax.debug.print("{}", x)
            return x + 1

        return jax.lax.fori_loop(0, x.shape[0], body, x)

    with pytest.warns(shardc.RequestWarning, match=r"test_jit\.py:\d+ .* is inside a loop"):
        assert np.asarray(sharded(f)(np.zeros(2, np.int32))).tolist() == [2, 2]
