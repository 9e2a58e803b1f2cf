"""An exported file has the names, donations and source lines that the commands work with."""

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
from shardc.errors import InputError
from shardc.importer.from_file import import_file

STATE = {"w": np.ones((16, 8), np.float32), "b": np.zeros(8, np.float32)}
ROWS = np.ones((4, 16), np.float32)


def step(state: Any, rows: Any, unused: Any = 0) -> Any:
    loss = jax.value_and_grad(lambda s: jnp.mean((rows @ s["w"] + s["b"]) ** 2))
    value, gradient = loss(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradient), value


def arguments() -> Any:
    return jax.eval_shape(lambda: (STATE, ROWS))


@pytest.mark.parametrize(
    "fun",
    [step, jax.jit(step, donate_argnums=0), shardc.jit(step, donate_argnums=0)],
    ids=["plain", "jax.jit", "shardc.jit"],
)
def test_names_donations_and_lines_come_back(fun: Any, tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    plain = {"donate_argnums": 0} if fun is step else {}
    shardc.export(fun, *arguments(), path=path, **plain)
    found = import_file(path).arguments
    assert [each.name for each in found] == ["state['b']", "state['w']", "rows"]
    assert [each.donated for each in found] == [True, True, False]
    assert "test_export.py" in path.read_text()


def test_patterns_fit_what_was_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def step(state, rows):\n"
        "    return {'w': state['w'] * 0.9}, jnp.tanh(rows @ state['w'])\n"
        "def example():\n"
        "    f32 = jax.numpy.float32\n"
        "    rows = jax.ShapeDtypeStruct((64, 16), f32)\n"
        "    return {'w': jax.ShapeDtypeStruct((16, 8), f32)}, rows\n"
        "def broken(state, rows):\n"
        "    raise KeyError('mine')\n"
    )
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    done = run.invoke(main, ["export", "train:step", "train:example", "-o", "step.mlir"])
    assert (done.exit_code, done.output) == (0, "step.mlir\n")
    flags = ["--cluster", "cpu8", "--mesh", "model=8", "--sharding", "state*=-,model"]
    done = run.invoke(main, ["plan", "step.mlir", *flags, "--stages", "1", "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["stages"][0]["axes"] == ["model"]
    for name, message in {
        "train:broken": "'train:broken' failed with KeyError: 'mine'",
        "train:none": "the module 'train' has no 'none'",
        "train": "'train' does not name an object",
        "no_such_module:step": "failed with ModuleNotFoundError",
    }.items():
        done = run.invoke(main, ["export", name, "train:example", "-o", "x.mlir"])
        assert done.exit_code == 2
        assert message in done.stderr


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the program cannot be written"):
        shardc.export(step, STATE, ROWS, path=tmp_path)
