"""What shardc's own results lie like is no wish of the user's: it is priced, and may change."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.api.planning import plan_cache
from shardc.cluster import Cluster, Device, Level
from shardc.plan.executable import StageProgram

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 64)).astype(np.float32)
PARAMS = {
    "in": RNG.standard_normal((64, 256)).astype(np.float32) / 8,
    "out": RNG.standard_normal((256, 64)).astype(np.float32) / 16,
}
SPLIT = {"in": P(None, "model"), "out": P("model", None)}
ONE_STAGE = {"stages": 1, "microbatches": 1}


def loss(params: Any, x: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"]) ** 2)


def step(params: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def trained(**options: Any) -> tuple[Any, Any]:
    """A function, and the state after two steps of it."""
    f = shardc.jit(step, donate_argnums=0, **options)
    state = jax.tree.map(jnp.asarray, PARAMS)
    for _ in range(2):
        state, _ = f(state, X)
    return f, state


def arguments(planned: Any) -> dict[str, Any]:
    programs: tuple[StageProgram, ...] = planned.executable.programs
    return {spec.value: spec.sharding.dims for p in programs for spec in p.args}


def sharded_by_model() -> tuple[Any, Any]:
    return trained(mesh={"data": 2, "model": 4}, shardings=SPLIT, **ONE_STAGE)


def wishes(planned: Any) -> dict[str, float]:
    found: dict[str, float] = planned.sharding_prices()
    return found


def test_after_training_the_plan_is_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    f, state = trained(**ONE_STAGE)
    planned = f.lower(state, X).plan()
    assert planned.plan == f.plan
    assert wishes(planned) == {}
    assert len(list(tmp_path.iterdir())) == 1


def test_an_evaluation_takes_the_state_where_it_lies_unasked() -> None:
    """Gathering costs more than the one sum that computing where it lies needs."""
    _, state = sharded_by_model()
    evaluate = shardc.jit(loss, **ONE_STAGE)
    planned = evaluate.lower(state, X).plan()
    assert wishes(planned) == {}
    mesh = planned.plan.stages[0].mesh
    assert mesh.shape == (2, 4)
    y = mesh.axes[1][0]
    found = arguments(planned)
    assert (found["arg0"], found["arg1"]) == (((), (y,)), ((y,), ()))
    compiled = planned.compile()
    own = compiled.input_shardings[0][0]
    for name, leaf in state.items():
        assert leaf.sharding.is_equivalent_to(own[name], 2)
    np.testing.assert_allclose(compiled(state, X), loss(shardc.gather(state), X), rtol=1e-5)


def test_what_was_put_somewhere_may_be_moved_for_less() -> None:
    """Where messages are free and the work is large, whole copies lose to even work."""
    device = Device("slow", 1 << 30, {"default": 1e6}, 1e30)
    cluster = Cluster("test", device, (Level("link", 8, 1e12, 0.0),))
    _, state = sharded_by_model()
    planned = shardc.jit(loss, cluster=cluster, **ONE_STAGE).lower(state, X).plan()
    by_device = planned.plan.stages[0].num_flops / 1e6 / 8
    assert planned.plan.predicted.step_time_s < 1.2 * by_device


def test_the_same_layout_by_the_user_is_a_wish() -> None:
    mesh = Mesh(np.reshape(jax.devices(), (2, 4)), ("data", "model"))
    state = {name: jax.device_put(PARAMS[name], NamedSharding(mesh, SPLIT[name])) for name in SPLIT}
    planned = shardc.jit(loss, **ONE_STAGE).lower(state, X).plan()
    assert planned.plan.stages[0].mesh.axes == (("data", 2), ("model", 4))
    assert set(wishes(planned)) == {"argument 'params['in']'", "argument 'params['out']'"}


def test_what_jax_makes_of_results_is_no_wish_either() -> None:
    _, state = sharded_by_model()
    copies = jax.tree.map(lambda leaf: leaf * 2, state)
    planned = shardc.jit(loss, **ONE_STAGE).lower(copies, X).plan()
    assert wishes(planned) == {}


def test_a_second_step_takes_the_state_of_a_pipeline() -> None:
    _, state = trained(stages=2, microbatches=2)
    g = shardc.jit(step, donate_argnums=0, **ONE_STAGE)
    assert wishes(g.lower(state, X).plan()) == {}
    want, _ = jax.jit(step)(shardc.gather(state), X)
    got, _ = g(state, X)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)


def test_every_file_of_shardc_counts_in_the_key_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), real(path))[1])
    plan_cache._code_digest.__wrapped__()
    root = Path(shardc.__file__).parent
    assert set(read) == set(root.rglob("*.py"))
