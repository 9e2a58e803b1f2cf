"""The plans that people write by hand, beside the search's own."""

import math
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import shardc
from shardc.api.planning import find
from shardc.cluster import Level
from shardc.plan.stages_spec import StageSpec
from shardc.planner.hand import beside
from shardc.planner.hand.usual import usual_plans
from shardc.report.compare import step_words
from shardc.report.reading import read_plan
from shardc.report.words import in_words
from tests.py.report.test_reading import CLUSTER, planned, step


def test_the_usual_plans_lay_arguments_out_as_people_do() -> None:
    specs = {each.name: each for each in usual_plans(planned("fsdp"), CLUSTER)}
    assert {"data parallel", "ZeRO-1", "FSDP", "tensor parallel"} <= specs.keys()
    up, momentum = (f"state['{tree}']['layers'][0]['up']" for tree in ("params", "momentum"))
    assert specs["data parallel"].shardings[up] == "-,-"
    assert specs["data parallel"].shardings["x"] == "data,-"
    zero = specs["ZeRO-1"].shardings
    assert (zero[up], zero[momentum]) == ("-,-", "-,data")
    assert specs["FSDP"].shardings[up] == "-,data"
    assert specs["tensor parallel"].shardings == {"x": "-,-", "y": "-,-"}


def test_several_pipelines_are_among_them() -> None:
    names = {each.name: each for each in usual_plans(planned("data", 1, 4), CLUSTER)}
    assert {"2 stages x data 2", "2 stages x tensor 2", "4 stages"} <= names.keys()
    spec = names["2 stages x data 2"]
    assert (len(spec.stages), spec.microbatches, spec.mesh) == (2, 8, {"data": 2})
    assert spec.shardings == {"x": "data,-", "y": "data,-"}
    large = msgspec.structs.replace(CLUSTER, levels=(Level("link", 8, 1e8, 0.0),))
    names = {each.name: each for each in usual_plans(planned("data", 1, 4), large)}
    cube = names["2 stages x data 2 x tensor 2"]
    assert cube.mesh == {"data": 2, "model": 2} and len(cube.stages) == 2


def fast(**options: Any) -> Any:
    return shardc.jit(step, cluster=CLUSTER, stages=1, microbatches=1, donate_argnums=0, **options)


def state() -> Any:
    one = {"up": np.ones((64, 128), np.float32), "down": np.ones((128, 64), np.float32)}
    params = {"layers": [one]}
    data = np.ones((16, 64), np.float32)
    return {"params": params, "momentum": params}, data, data


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "plans"))
    return tmp_path


@pytest.mark.slow
def test_python_ranks_them_and_keeps_them_with_the_plan(own_cache: Path) -> None:
    made = fast().lower(*state()).plan()
    assert "data parallel" not in made.explain()
    names = [each.name for each in made.beside()]
    assert {"this plan", "data parallel", "ZeRO-1", "FSDP", "tensor parallel"} <= set(names)
    lines = str(made.beside()).splitlines()
    assert [line.split(":")[0] for line in lines] == names
    assert all("microbatch" in line for line in lines)
    times = [each.step_time_s for each in made.beside()]
    assert times == sorted(times)
    path = own_cache / "plan.json"
    made.plan.save(path)
    kept = shardc.Plan.load(path)
    for text in (made.explain(), in_words(read_plan(kept))):
        assert "  data parallel: 1 x (4), 1 microbatch" in text
    # The cache has them, too, so the option costs nothing now.
    with_option = fast(beside=True).lower(*state()).plan()
    assert with_option.plan.from_cache
    assert [each.name for each in read_plan(with_option.plan).judged] == names


def test_what_the_program_does_not_allow_is_there_with_its_reason(own_cache: Path) -> None:
    found = {each.name: each for each in fast().lower(*state()).plan(beside=True).beside()}
    refused = [each for each in found.values() if each.refusal]
    assert refused, "a step of one layer has no four stages"
    assert all(each.step_time_s == math.inf for each in refused)
    assert found["4 stages"].refusal.startswith("SHARDC-160: 4 stages were asked for")
    assert step_words(found["4 stages"]) == "not possible"


def test_an_interrupt_keeps_those_planned_so_far(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fast().lower(*state()).plan()
    planned_names: list[str] = []
    real = beside.hand_plan

    def slow(*args: Any) -> Any:
        planned_names.append(args[3].name)
        if len(planned_names) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(*args)

    monkeypatch.setattr(beside, "hand_plan", slow)
    names = {each.name for each in made.beside()}
    assert set(planned_names[:2]) <= names and planned_names[2] not in names
    assert len(planned_names) == 3
    assert made.plan.account is not None and not made.plan.account.has_usual
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(beside, "hand_plan", real)
    names_now = [each.name for each in made.beside()]
    assert planned_names[2] in names_now and len(set(names_now)) == len(names_now)


@pytest.mark.slow
def test_progress_names_the_plan_at_hand(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(find, "say", said.append)
    fast().lower(*state()).plan(beside=True)
    assert any("planning by hand, 1 of" in each and "data parallel" in each for each in said)
    spec = shardc.StagesSpec(1, (StageSpec(),), name="mine")
    said.clear()
    shardc.jit(step, cluster=CLUSTER, plan=spec).lower(*state()).plan()
    assert said == ["planning 'mine'"]
