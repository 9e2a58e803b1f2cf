"""The gallery's script: which programs of a folder it plans, and what it keeps of each."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardc.cluster import Cluster
from tests.py.cli.programs import write_mlp
from tests.py.report.test_reading import CLUSTER, planned

ROOT = Path(__file__).parents[3]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "tools" / "write_gallery.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tiny_and_full_programs_of_a_folder_are_planned(tmp_path: Path) -> None:
    for name in ("a.tiny.mlir.gz", "a.full.mlir.gz", "b.tiny.mlir", "c.mlir.gz", "README.md"):
        (tmp_path / name).touch()
    found = [(path.name, name, cluster) for path, name, cluster in script().programs(tmp_path)]
    assert found == [
        ("a.full.mlir.gz", "a.full", "h100-64"),
        ("a.tiny.mlir.gz", "a", "cpu8"),
        ("b.tiny.mlir", "b", "cpu8"),
    ]


@pytest.mark.slow
def test_a_plan_is_kept_with_its_day_and_cost_model_or_with_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = script()
    monkeypatch.setattr(gallery, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(gallery, "MADE", tmp_path / "plans" / "made.json")
    program = write_mlp(tmp_path)
    for name, machine in (("mlp", CLUSTER), ("large", CLUSTER.with_memory(1 << 10))):
        file = tmp_path / f"{name}.json"
        file.write_bytes(msgspec.json.encode(machine))
        (tmp_path / "plans").mkdir(exist_ok=True)
        gallery.note({name: gallery.plan_and_keep(program, name, str(file), 20.0)})
    assert list(gallery.kept()) == ["mlp"]
    made = gallery.all_made()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made["mlp"].date)
    assert made["mlp"].cost_model == gallery.cost_model(CLUSTER)
    assert made["mlp"].refusal == ""
    assert made["large"].refusal.startswith("error[SHARDC-2")
    index = gallery.index(gallery.kept(), made)
    assert "| [mlp](mlp.md) | test | " in index
    assert made["large"].refusal in index


def test_the_cost_model_has_a_digest() -> None:
    gallery = script()
    other = Cluster("test", CLUSTER.device, (msgspec.structs.replace(CLUSTER.levels[0], size=2),))
    assert gallery.cost_model(CLUSTER) == gallery.cost_model(CLUSTER)
    assert gallery.cost_model(CLUSTER) != gallery.cost_model(other)


def test_pictures_have_the_same_names_each_time() -> None:
    gallery = script()
    assert gallery.tidy('<a id="x9"/><b clip="url(#x9)"/>') == '<a id="c0"/><b clip="url(#c0)"/>'


@pytest.mark.slow
def test_a_long_timeline_is_shown_up_to_its_first_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = script()
    timeline, _ = gallery.charts_of(planned("", 2, 4))
    assert not timeline.plot.title.text
    monkeypatch.setattr(gallery, "MOST_DRAWN", 5)
    timeline, _ = gallery.charts_of(planned("", 2, 4))
    assert timeline.plot.title.text.startswith("the first ")
