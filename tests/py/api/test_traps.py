"""Small traps that users met."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import shardc
from shardc.cli import main
from shardc.errors import PlanError, ShardcError
from tests.py.table import CLUSTER

WEIGHTS = {f"w{n}": np.eye(64, dtype=np.float32) / (n + 2) for n in range(4)}
ROWS = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)


def loss(w: Any, x: Any) -> Any:
    for name in sorted(w):
        x = jnp.tanh(x @ w[name])
    return (x**2).mean()


def step(w: Any, x: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(w, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


def test_a_deleted_argument_is_not_called_donated() -> None:
    x = jnp.ones((8, 8))
    double = shardc.jit(lambda x: 2 * x, cluster=CLUSTER, stages=1)
    double(x)
    x.delete()
    with pytest.raises(ShardcError, match="argument 'x' is gone: it was donated by"):
        double(x)


def test_too_many_virtual_devices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    shardc.export(step, WEIGHTS, ROWS, path=path)
    done = CliRunner().invoke(main, ["run", str(path), "--devices", "20000"])
    assert done.exit_code == 2
    assert "--devices 20000: this machine supports at most 1024 virtual devices" in done.stderr


def test_the_plan_of_another_program_is_said_to_be_that(tmp_path: Path) -> None:
    own, other = tmp_path / "own.mlir", tmp_path / "other.mlir"
    shardc.export(step, WEIGHTS, ROWS, path=own)
    shardc.export(lambda x: jnp.tanh(x).sum(), ROWS[:7], path=other)
    flags = ["--cluster", "cpu8", "--stages", "2", "--microbatches", "4"]
    run = CliRunner()
    done = run.invoke(main, ["plan", str(own), *flags, "-o", str(tmp_path / "plan.json")])
    assert done.exit_code == 0, done.output
    for cut in ([0], [4]):
        plan = json.loads((tmp_path / "plan.json").read_text())
        plan["batch_arguments"] = cut
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        arguments = ["--plan", str(tmp_path / "plan.json"), "-o", str(tmp_path / "out")]
        done = run.invoke(main, ["compile", str(other), *arguments])
        assert done.exit_code == 2
        assert "error[SHARDC-200]" in done.stderr
        assert "another program" in done.stderr


def test_a_plan_of_another_program_in_python() -> None:
    made = shardc.jit(step, cluster=CLUSTER, stages=2, microbatches=4, mesh=(2,))
    plan = made.lower(WEIGHTS, ROWS).plan().plan
    other = shardc.jit(step, cluster=CLUSTER, plan=plan)
    with pytest.raises(PlanError, match="made for another program"):
        other(WEIGHTS, ROWS[:30])


def test_a_plan_from_the_cache_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "kept"))

    def explained() -> str:
        lowered = shardc.jit(step, cluster=CLUSTER, stages=1, mesh=(8,)).lower(WEIGHTS, ROWS)
        planned = lowered.plan()
        planned.plan.save(tmp_path / "plan.json")
        assert not shardc.Plan.load(tmp_path / "plan.json").from_cache
        text: str = planned.explain()
        return text

    assert "from the cache" not in explained()
    again = explained()
    assert "loaded from the cache (planned in" in again


def test_a_batch_argument_is_explained_with_the_dims_it_has() -> None:
    made = shardc.jit(step, cluster=CLUSTER, stages=1, microbatches=4, mesh=(2, 4))
    planned = made.lower(WEIGHTS, ROWS).plan()
    first = planned.explain("x").splitlines()[0]
    assert first.startswith("x, stage 0: [")
    assert first.split("stage 0: ")[1].partition("]")[0].count(",") == 1


def test_nans_name_the_op_and_its_line() -> None:
    def logarithm(x: Any) -> Any:
        return jnp.log(x)

    made = shardc.jit(logarithm, cluster=CLUSTER, stages=1)
    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=r"NaN .* by 'stablehlo.log' at test_traps.py:\d+"),
    ):
        made(-np.ones((8, 8), np.float32))


def test_a_batch_without_rows_is_planned() -> None:
    assert jnp.isnan(shardc.jit(step, cluster=CLUSTER)(WEIGHTS, ROWS[:0])[1])


def test_gradients_without_a_loss_say_why_there_are_no_stages() -> None:
    """`jax.checkpoint` leaves nothing of the forward pass where the loss is not returned."""
    only = jax.grad(jax.checkpoint(loss))
    made = shardc.jit(only, cluster=CLUSTER, stages=2, microbatches=2)
    with pytest.warns(shardc.RequestWarning, match="no value of the forward pass"):
        made.lower(WEIGHTS, ROWS).plan()


def test_state_of_a_pipeline_moves_without_paragraphs_of_xla(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from shardc.runtime.transfers import Transfers

    devices = np.array(jax.devices())
    three = Mesh(devices.reshape(2, 2, 2), ("x", "y", "rest"))
    two = Mesh(devices.reshape(4, 2), ("x", "y"))
    spec = PartitionSpec
    for source, target in (
        (NamedSharding(three, spec("y", "x")), NamedSharding(three, spec(("rest", "x", "y")))),
        (NamedSharding(two, spec(None, ("x", "y"))), NamedSharding(three, spec("rest", "x"))),
        (NamedSharding(three, spec("y")), NamedSharding(three, spec(None, ("rest", "x")))),
        (NamedSharding(two, spec("x")), NamedSharding(two, spec(None, "x"))),
    ):
        value = jax.device_put(ROWS, source)
        moved = Transfers().find(source, target, ROWS.shape, "float32")(value)
        assert moved.sharding.is_equivalent_to(target, 2)
        np.testing.assert_array_equal(moved, ROWS)
    assert "rematerialization" not in capfd.readouterr().err
