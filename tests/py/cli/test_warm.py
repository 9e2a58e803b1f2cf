"""What `shardc warm` keeps is what a program finds when it starts."""

import json
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests.py.cli.programs import shardc

MODULE = """
import jax, jax.numpy as jnp, shardc

def sgd(state, x):
    grads = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) @ w) ** 2))(state["w"])
    return {"w": state["w"] - 0.1 * grads, "n": state["n"] + 1}

step = shardc.jit(sgd, donate_argnums=0, stages=2, microbatches=2, mesh=(2,))

def example():
    shape = jax.ShapeDtypeStruct
    state = {"w": shape((16, 16), jnp.float32), "n": shape((), jnp.int32)}
    return state, shape((8, 16), jnp.float32)
"""


@pytest.fixture
def kept_programs(tmp_path: Path) -> Iterator[dict[str, int]]:
    """A persistent compilation cache of this test's own, and what is found in it."""
    found: dict[str, int] = {}

    def listen(event: str, **_: object) -> None:
        found[event.rpartition("/")[2]] = found.get(event.rpartition("/")[2], 0) + 1

    least_s = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "programs"))
    compilation_cache.reset_cache()
    jax.monitoring.register_event_listener(listen)
    yield found
    jax.monitoring.clear_event_listeners()
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_s)
    compilation_cache.reset_cache()


@pytest.mark.slow
def test_a_function_that_was_warmed_is_neither_planned_nor_compiled_again(
    kept_programs: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warmed.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    ran = shardc("warm", "warmed:step", "warmed:example", "--devices", 8, "--format", "json")
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.stdout)
    assert Path(answer["plan"]).exists()
    assert answer["programs_kept_in"] == str(tmp_path / "programs")
    assert answer["programs"] > 2
    import warmed

    jax.clear_caches()
    again = warmed.shardc.jit(
        warmed.sgd, donate_argnums=0, stages=2, microbatches=2, mesh=(2,)
    )  # as another process has it
    kept_programs.clear()
    compiled = again.warm_up({"w": np.ones((16, 16), "f"), "n": np.int32(0)}, np.ones((8, 16), "f"))
    assert compiled.plan.from_cache
    assert kept_programs.get("cache_misses", 0) == 0
    assert kept_programs["cache_hits"] > 2


def test_what_runs_after_a_warm_up_is_not_traced_again() -> None:
    import shardc as package

    step = package.jit(lambda w, x: (w - 0.1 * jnp.mean(x @ w), jnp.sum(w)), mesh=(2,), stages=1)
    shape = jax.ShapeDtypeStruct
    compiled = step.warm_up(shape((8, 8), jnp.float32), shape((4, 8), jnp.float32))
    assert step.cache_info()[:3] == (0, 1, 1)
    step(jnp.ones((8, 8)), jnp.ones((4, 8)))
    assert step.cache_info()[:3] == (1, 1, 1)
    assert step.plan is compiled.plan


@pytest.mark.slow
def test_files_are_warmed_and_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = jax.jit(lambda w, x: w - 0.1 * jnp.mean(x @ w), donate_argnums=0).lower(
        jnp.ones((8, 8)), jnp.ones((4, 8))
    )
    file = tmp_path / "step.mlir"
    file.write_text(text.as_text())
    ran = shardc("warm", file, "--devices", 2, "--stages", 1, "--microbatches", 1)
    assert ran.exit_code == 0, ran.output
    assert "compiled and not cached; set JAX_COMPILATION_CACHE_DIR" in ran.stdout
    (tmp_path / "plain.py").write_text("def step(x): return x\nexample = (1.0,)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ran = shardc("warm", "plain:step", "plain:example", "--devices", 2)
    assert ran.exit_code == 2
    assert "'plain:step' is not a shardc.jit function" in ran.stderr
    ran = shardc("warm", "plain:step", "plain:example", "--devices", 2, "--stages", 2)
    assert ran.exit_code == 2
    assert "its own shardc.jit" in ran.stderr
