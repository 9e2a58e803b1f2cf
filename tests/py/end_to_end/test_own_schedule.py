"""Schedules beside gpipe and 1f1b that need no other programs run with the same numbers."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ScheduleError
from shardc.schedule.family import Costs, Lanes
from shardc.schedule.tasks import Task
from shardc.schedule.work import Work


def one_at_a_time(work: Work, costs: Costs) -> Lanes:
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in "FB"]
        for stage in range(work.num_stages)
    ]


V = """
0 | 0F0 .   .   3F0 3B0 .   0F1 0B0 .   .   3F1 3B1 .   .   0B1
1 | .   1F0 2F0 .   .   2B0 1B0 1F1 2F1 .   .   .   2B1 1B1
"""


TWO_COPIES = """
0 | 0F0 1F1' 1B1' 0B0
1 | 0F1' 1F0 1B0 0B1'
"""


@pytest.mark.parametrize("name", ["eager-1f1b", "there-and-back", "v.grid", "copies.grid"])
def test_values_equal_the_unsharded_program(name: str, tmp_path: Path) -> None:
    def step(weights, x, t):  # type: ignore[no-untyped-def]  # arrays in and out
        def loss_of(weights):  # type: ignore[no-untyped-def]
            hidden = x
            for weight in weights:
                hidden = jnp.tanh(hidden @ weight)
            return jnp.mean((hidden - t) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients))  # known before any update
        rows = jnp.argmax(x @ weights[0], -1)
        new = [w - 0.1 * g / norm for w, g in zip(weights, gradients, strict=True)]
        return new, loss, rows

    shardc.register_schedule("there-and-back", one_at_a_time)
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(16, 16)).astype(np.float32) for _ in range(4)]
    x, t = (draw.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
    if name.endswith(".grid"):
        (tmp_path / name).write_text(V if name == "v.grid" else TWO_COPIES)
        name = str(tmp_path / name)
    count = 2 if name.endswith(".grid") else 4
    planned = shardc.jit(step, stages=2, microbatches=count, schedule=name, time_limit_s=10)
    ours, theirs = planned(weights, x, t), jax.jit(step)(weights, x, t)
    assert planned.plan.schedule == name
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        (
            "0 | 0F0 . 0B0 0F1 0B1\n1 | . 1F0 . 1F1 1B0 . 1B1",
            "244",
            "1, row 0, column 2",
        ),  # a cycle
        ("0 | 0F0 . . 0B0\n1 | . 1B0 1F0", "244", "2, row 1, column 1"),  # before what it needs
        ("0 | 0F0 . . 0B0\n1 | . 1F0", "243", "2, row 1"),  # what 1F0 makes would never be freed
        ("0 | 0F0 . . 0B0 0B0\n1 | . 1F0 1B0", "243", "1, row 0, column 4"),
    ],
)
def test_a_wrong_grid_is_refused_at_its_cell(
    text: str, code: str, where: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.grid").write_text(text)
    with pytest.raises(ScheduleError) as caught:
        shardc.jit(lambda x: x, schedule=str(tmp_path / "mine.grid"))
    assert caught.value.code == f"SHARDC-{code}" and caught.value.help
    assert str(caught.value.where).startswith(f"{tmp_path / 'mine.grid'}:{where}")


def test_a_grid_says_how_many_stages_and_microbatches_there_are(tmp_path: Path) -> None:
    """Left to the planner, they were one each, and the grid was not run."""
    (tmp_path / "mine.grid").write_text("0 | 0F0 . 0B0 0F1 . 0B1\n1 | 1F0 1B0 1F1 1B1")

    def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])))(weights)

    weights, x = [np.ones((8, 8), np.float32)] * 2, np.ones((8, 8), np.float32)
    for given in ({}, {"stages": 2}, {"microbatches": 2}):
        name = str(tmp_path / "mine.grid")
        found = shardc.jit(step, schedule=name, time_limit_s=10, **given).lower(weights, x).plan()
        plan = found.plan
        assert (plan.schedule, plan.num_stages, plan.num_microbatches) == (name, 2, 2)
        assert [action for action in plan.lanes[1] if action[1] in "FB"] == [
            "1F0", "1B0", "1F1", "1B1",
        ]  # fmt: skip


def test_a_grid_runs_its_own_counts_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "mine.grid").write_text("0 | 0F0 . . 0B0\n1 | . 1F0 1B0")

    def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])))(weights)

    weights, x = [np.ones((8, 8), np.float32)] * 2, np.ones((8, 8), np.float32)
    wrong = shardc.jit(
        step, schedule=str(tmp_path / "mine.grid"), stages=2, microbatches=4, time_limit_s=10
    )
    with pytest.raises(ScheduleError, match="has 2 rows and 1 microbatches") as caught:
        wrong.lower(weights, x).plan()
    assert caught.value.code == "SHARDC-242"
