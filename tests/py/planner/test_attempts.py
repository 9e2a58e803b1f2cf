"""What is planned exactly; a program of which no plan fits is told what fills the devices."""

import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc.errors import InfeasibleError
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape
from shardc.planner import search
from shardc.planner.attempts import Attempts, shape_words
from tests.py.programs import build


def refusal(limit: int, **options: Any) -> InfeasibleError:
    step, args, donated, *_ = build("mlp")
    f = shardc.jit(
        step, donate_argnums=donated, cluster="cpu8", memory_limit_bytes=limit, **options
    )
    with pytest.raises(InfeasibleError) as refused:
        f.lower(*args).plan()
    assert refused.value.code == "SHARDC-220"
    return refused.value


def test_a_state_that_is_too_large_asks_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search."""
    monkeypatch.delattr(search, "promising_shapes")
    _, (state, *_), *_ = build("mlp")
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(jax.tree.map(jnp.asarray, state)))
    error = refusal(1000)
    assert f"the state alone is {held:,} bytes" in str(error.help)
    assert f"use at least {-(-held // 1000)} devices" in str(error.help)
    assert error.message.startswith("no plan fits into 1,000 bytes per device: the state alone")


@pytest.mark.slow
def test_activations_that_are_too_large_ask_for_recomputation() -> None:
    error = refusal(9000)
    assert "jax.checkpoint" in str(error.help) and "smaller batch" in str(error.help)
    assert "more devices" in str(error.help) and "another may need less" in str(error.help)


@pytest.mark.slow
def test_a_refusal_names_the_shape_that_misses_the_limit_by_least() -> None:
    """In more microbatches it misses it by less than in one."""
    error = refusal(8000)
    named = re.fullmatch(
        r"none of (\d+) shapes tried fits; the closest is 1 stage on 1 x \(.*\), (\d+)"
        r" microbatches: stage 0, on devices 0-7: .* ([0-9,]+) too many.*",
        error.message,
    )
    assert named is not None, error.message
    assert int(named[1]) > 2 and int(named[2]) > 1


@pytest.mark.slow
def test_stages_that_do_not_fit_say_how_many_were_asked_for_and_by_how_much_they_miss() -> None:
    error = refusal(8000, stages=8)
    assert re.search(r"5 stages on 5 x \(1\), .* too many", error.message), error.message
    assert "5 stages instead of 8: " in str(error.help)


@pytest.mark.slow
def test_a_schedule_that_does_not_run_one_microbatch_is_tried_in_more() -> None:
    error = refusal(8000, stages=2, schedule="interleaved-1f1b")
    assert "2 device groups with 2 stages each on 2 x " in error.message


@pytest.mark.parametrize(
    ("estimate_s", "best", "stages", "beaten"),
    [
        pytest.param(75.2, (74.6, 72.2, 2), 4, True, id="slower than the best and its estimate"),
        pytest.param(74.7, (74.6, 72.2, 2), 4, False, id="estimates are that close"),
        pytest.param(31.0, (30.9, 32.1, 2), 1, False, id="faster than the best"),
        pytest.param(104.0, (99.0, 100.0, 1), 2, False, id="a pipeline has other schedules"),
        pytest.param(106.0, (99.0, 100.0, 1), 2, True, id="too slow for these, too"),
    ],
)
def test_shapes_that_the_best_plan_beats(
    estimate_s: float, best: tuple[float, float, int], stages: int, beaten: bool
) -> None:
    own_s, seconds, count = best
    tried: Any = SimpleNamespace(
        best=SimpleNamespace(
            proposal=SimpleNamespace(step_time_s=own_s), shape=SimpleNamespace(num_stages=count)
        ),
        best_s=seconds,
    )
    found: Any = SimpleNamespace(
        pipeline=SimpleNamespace(step_time_s=estimate_s, stages=[()] * stages)
    )
    assert Attempts.is_beaten(tried, found) == beaten


def test_progress_counts_the_devices_of_a_group_once() -> None:
    groups = Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3))
    plain = PipelineShape(4, (3,), groups, "1f1b")
    assert shape_words(plain) == "2 stages on 2 x (2)"
    chunked = PipelineShape(4, (1, 2, 3), groups * 2, "interleaved-1f1b", num_chunks=2)
    assert shape_words(chunked) == "2 device groups with 2 stages each on 2 x (2)"
