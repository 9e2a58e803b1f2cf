"""docs/schedules.md shows what the schedules are."""

import importlib.util
from pathlib import Path
from types import ModuleType

from shardc.schedule.families import built_in

ROOT = Path(__file__).parents[3]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "draw_schedules", ROOT / "tools" / "draw_schedules.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_drawn_from_its_schedule() -> None:
    text = tool().PAGE.read_text(encoding="utf-8")
    assert tool().page(text) == text, "run tools/draw_schedules.py"


def test_every_family_is_in_the_comparison_and_says_truly_what_is_executed() -> None:
    page = tool().PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    told = {name.strip(): state.strip() for names, state in rows for name in names.split(",")}
    for name, family in built_in().items():
        if not name.startswith("2bp"):
            key = "optimal with a bound" if name == "optimal" else name
            assert told[key] == ("simulated" if family.moves else "executed"), family
