"""Files of measured runs: what a row says, and what is said of one that cannot be."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROW = {
    "num_devices": "8",
    "global_batch": "16",
    "microbatch_size": "1",
    "hidden": "256",
    "heads": "4",
    "layers": "8",
    "sequence": "128",
    "tensor": "2",
    "data": "2",
    "pipeline": "2",
    "iteration_time_ms": "12.5",
}


@pytest.fixture(scope="module")
def measured():
    """benchmarks/measured.py, a script whose neighbours are found beside it."""
    place = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, place)
    yield importlib.import_module("measured")
    sys.path.remove(place)


def test_a_row_is_the_run_it_describes(measured):
    run = measured.read(ROW)
    assert (run.num_devices, run.pipeline, run.chunks, run.num_microbatches) == (8, 2, 1, 8)
    assert (run.gpt.tensor, run.gpt.data, run.gpt.vocabulary) == (2, 2, 50257)
    assert run.measured_ms == 12.5


def test_what_may_be_missing_or_blank(measured):
    run = measured.read({**ROW, "iteration_time_ms": " ", "chunks": "", "vocabulary": None})
    assert (run.measured_ms, run.chunks, run.gpt.vocabulary) == (None, 1, 50257)
    run = measured.read({**ROW, "chunks": "2", "vocabulary": "51200.0"})
    assert (run.chunks, run.gpt.vocabulary) == (2, 51200)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hidden": ""}, "hidden is '', not a number"),
        ({"layers": "x"}, "layers is 'x', not a number"),
        ({"tensor": "0"}, "tensor is 0, not a whole number"),
        ({"num_devices": "16"}, "tensor x data x pipeline is 8, and num_devices 16"),
        ({"heads": "3"}, "hidden 256 does not divide into heads 3"),
        ({"microbatch_size": "3"}, "global_batch 16 is not microbatches of 3"),
        ({"chunks": "5"}, "8 layers are fewer than the stages"),
        ({"iteration_time_ms": "-1"}, "iteration_time_ms is -1"),
        ({"iteration_time_ms": "nan"}, "iteration_time_ms is nan"),
    ],
)
def test_a_row_that_cannot_be_says_why(measured, change, why):
    with pytest.raises(ValueError, match=why):
        measured.read({**ROW, **change})


def test_marks_and_spaces_of_a_file_count_for_nothing(measured, tmp_path):
    path = tmp_path / "runs.csv"
    names, values = ", ".join(ROW), ", ".join(ROW.values())
    path.write_text(f"\ufeff{names} \r\n{values}\r\n\r\n", encoding="utf-8")
    assert measured.rows_of(path) == [ROW]
    path.write_text("")
    assert measured.rows_of(path) == []


def test_stages_and_microbatches_that_are_alike_are_compiled_once(measured, monkeypatch):
    plan = importlib.import_module("measured_plan")
    compiled = []

    def asks(run):
        compiled.append(run)
        named = tuple({"layers": n} for n in run.layers)
        return plan.Asks(named, ((0, 1, 7), (1, 0, 7)), run.layers)

    monkeypatch.setattr(plan, "planned", lambda run, cluster: run)
    monkeypatch.setattr(plan, "asks", asks)
    replay = plan.Replay(None)
    long = {**ROW, "num_devices": "24", "pipeline": "6", "layers": "15", "global_batch": "32"}
    found = replay.asks(measured.read(long))
    assert [each["layers"] for each in found.asked] == [2, 3, 2, 3, 2, 3]
    assert found.kept == (2, 3, 2, 3, 2, 3)
    assert found.sent[:2] == ((0, 1, 7), (1, 2, 7)) and len(found.sent) == 10
    replay.asks(measured.read({**long, "global_batch": "64"}))
    (one,) = compiled
    assert (one.layers, one.num_microbatches, one.gpt.layers) == ((2, 2, 3, 3), 2, 10)


def test_scores_are_among_runs_of_one_model_devices_and_batch(measured):
    def run(predicted, actual, hidden=256):
        sizes = dict.fromkeys(measured.SIZES, 1) | {"hidden": hidden}
        error = predicted / actual - 1
        return sizes | {"predicted_ms": predicted, "measured_ms": actual, "relative_error": error}

    found = measured.score([run(1.0, 2.0), run(2.0, 1.0), run(3.0, 4.0), run(9.0, 1.0, hidden=512)])
    assert (found["num_pairs"], found["num_runs"]) == (3, 4)
    assert found["pairs_in_order"] == pytest.approx(2 / 3)
    assert found["mean_regret"] == 1.0  # the first is chosen, the second is twice as fast


@pytest.fixture(scope="module")
def alpa(measured):
    """benchmarks/alpa.py, beside it."""
    return importlib.import_module("alpa")


def test_published_plans_use_every_device_and_layer(alpa):
    for row in alpa.rows():
        spread = [
            (math.prod(stage.mesh), stage) for stage in row.stages for _ in range(stage.times)
        ]
        assert sum(size for size, _ in spread) == row.devices, row
        layers = [stage.layers for _, stage in spread]
        whole = row.sizes["layers"] // 2 if row.model == "moe" else sum(row.sizes["blocks"])
        assert layers == [None] or sum(layers) == whole, row


def test_pairs_are_of_systems_on_one_model_whose_times_differ(alpa):
    def row(system, predicted, actual, devices=8):
        sizes = {"model": "moe", "devices": devices, "system": system}
        return sizes | {"predicted_s": predicted, "measured_s": actual}

    rows = [row("a", 2.0, 1.0), row("b", 1.0, 1.2), row("c", 3.0, 1.05), row("d", 1.0, 9.0, 4)]
    pairs = alpa.in_order(rows)
    assert [(fast["system"], slow["system"], right) for fast, slow, right in pairs] == [
        ("a", "b", False),
        ("c", "b", False),
    ]


@pytest.mark.slow
def test_a_token_has_a_place_with_at_most_two_experts(measured):
    models = importlib.import_module("alpa_models")
    gates = np.random.default_rng(0).dirichlet(np.ones(4), (2, 16)).astype(np.float32)
    weights = np.asarray(models.top2(gates, places=8))
    assert weights.shape == (2, 16, 4, 8)
    assert ((weights > 0).sum((2, 3)) <= 2).all()
    assert ((weights > 0).sum(1) <= 1).all()  # one token in each place
    kept = weights.sum((2, 3))
    np.testing.assert_allclose(kept[kept > 0], 1, rtol=1e-5)
