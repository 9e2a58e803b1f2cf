"""Why things are sharded as they are: chosen strategy, its cost, and why the alternatives lose."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import shardc
from shardc.api.stages import Planned
from shardc.cli import main
from shardc.cluster import Cluster, Device, Level
from shardc.errors import InputError
from shardc.plan.notes import NoteCode
from shardc.report.counterfactuals import choices
from shardc.report.findings.of_plan import findings
from shardc.report.words import about

CLUSTER = Cluster(
    "test", Device("test", 1 << 30, {"default": 1e9}, 1e30), (Level("link", 4, 1e9, 0.0),)
)


def planned(stages: int = 1, devices: int = 4) -> Planned:
    """A wide MLP, for which columns and rows of the weights are split."""

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean((jax.nn.relu(x @ params["a"]) @ params["b"] - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    params = {"a": np.ones((128, 256), np.float32), "b": np.ones((256, 128), np.float32)}
    data = np.ones((16, 128), np.float32)
    options: dict[str, Any] = {"stages": stages, "microbatches": 2, "mesh": (devices // stages,)}
    sharded = shardc.jit(step, donate_argnums=0, cluster=CLUSTER, **options)
    lowered: Planned = sharded.lower(params, data, data).plan()
    return lowered


def test_an_argument_has_its_sharding_cost_and_alternatives() -> None:
    text = planned().explain("params.a")
    assert text.startswith("params['a'], stage 0: [-, x]\n")
    lines = text.splitlines()
    assert "of memory" in lines[1]
    alternatives = [line.split(" or ")[1].split(": ")[0] for line in lines if " or " in line]
    assert sorted(alternatives) == ["[-, -]", "[x, -]"]
    whole = next(line for line in lines if " or [-, -]" in line)
    assert "+96 KiB of memory" in whole  # four parts of 32 KiB instead of one


def test_one_device_replicates_nothing_and_has_no_other_choice() -> None:
    found = planned(devices=1)
    lines = found.explain("params.*").splitlines()
    names = [f"params['{name}'], stage 0: [-, -]" for name in "ab"]
    assert lines[:2] == names  # what is said of both stands once
    assert lines[2].startswith("    0 ns per step")
    assert lines[3:] == about(found.plan, "params.*")
    assert NoteCode.REPLICATED not in {note.code for note in found.plan.notes}
    assert "uneven-dim" not in {each.kind for each in findings(found.plan)}


def test_costs_are_those_of_the_plan_and_alternatives_cost_more() -> None:
    """The solver proved the optimum, so no single change can gain."""
    found = planned()
    found_choices = choices(found._prepared, found.plan, CLUSTER, lambda name: True)
    assert found_choices
    for choice in found_choices:
        assert all(more.seconds >= -1e-12 for _, more in choice.alternatives), choice
    products = [c for c in found_choices if c.name.startswith("stablehlo.dot_general")]
    num_flops = 5 * 2 * 16 * 128 * 256  # the gradient of the input is not needed
    assert sum(c.cost.compute_s for c in products) == pytest.approx(num_flops / 4 / 1e9)


def test_ops_are_found_by_name_and_place_on_every_stage() -> None:
    text = planned(stages=2).explain("dot_general")
    assert "in stage0_forward, stage 0" in text
    assert "in stage1_backward, stage 1" in text
    assert "test_counterfactuals.py" in text


def test_a_pattern_is_not_looked_for_inside_the_names_of_stage_functions() -> None:
    found = planned()
    with pytest.raises(InputError, match="matches no argument and no op"):
        found.explain("*_update*")
    assert "in stage0_forward, stage 0" in found.explain("stage0_forward")


def test_parts_of_the_model_are_explained_as_from_a_plan_file(tmp_path: Path) -> None:
    """Python knew nothing of them, and neither did `shardc explain --program`."""

    @functools.partial(jax.named_call, name="first")
    def block(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)

    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.mean(block(w, x) ** 2))(w)

    arguments = np.eye(8, dtype=np.float32), np.ones((8, 8), np.float32)
    found = shardc.jit(step, cluster=CLUSTER, stages=1, mesh=(4,)).lower(*arguments).plan()
    lines = found.explain("first").splitlines()
    assert lines == about(found.plan, "first") and lines[0].startswith("forward of first")
    program, plan = str(tmp_path / "step.mlir"), str(tmp_path / "plan.json")
    shardc.export(step, *arguments, path=program)
    found.plan.save(plan)
    done = CliRunner().invoke(main, ["explain", plan, "first", "--program", program])
    assert done.output.splitlines() == lines


def test_the_name_of_an_argument_is_not_looked_for_in_the_words_of_ops() -> None:
    """`x` is in `maximum`, and in the slice that takes a microbatch of it."""
    lines = planned().explain("x").splitlines()
    assert lines[0].startswith("x, stage 0: [")
    assert not any("stablehlo." in line for line in lines)


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="matches no argument and no op") as caught:
        planned().explain("no.such.thing")
    assert caught.value.code == "SHARDC-180"
