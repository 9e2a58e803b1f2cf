"""`import shardc` is fast because of what it leaves alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import shardc

ROOT = Path(__file__).parents[3]


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh Python has loaded after running `statement`."""
    program = f"import json, sys, typing\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(run.stdout))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_import_shardc_loads_the_roll_call_and_no_other_package() -> None:
    loaded = modules_after("import shardc") - modules_after("")
    own = {name for name in loaded if name.startswith("shardc.runtime.processes.")}
    begin = "shardc.runtime.processes."
    assert own == {f"{begin}roll_call", f"{begin}waiting"}
    assert packages(loaded) - sys.stdlib_module_names == {"shardc"}
    assert len([name for name in loaded if name.startswith("shardc")]) <= 7


def test_data_and_errors_load_neither_jax_nor_a_solver() -> None:
    loaded = packages(modules_after("from shardc import Cluster, Plan, ShardcError"))
    assert loaded & {"jax", "jaxlib", "ortools"} == set()


@pytest.mark.slow
def test_jit_loads_no_solver() -> None:
    assert "ortools" not in packages(modules_after("from shardc import jit, gather"))


@pytest.mark.parametrize("room", ["solver", "schedule", "cost"])
def test_planning_rooms_need_no_jax(room: str) -> None:
    program = (
        "import importlib, pkgutil, shardc\n"
        f"room = importlib.import_module('shardc.{room}')\n"
        "for each in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "    importlib.import_module(each.name)"
    )
    assert packages(modules_after(program)) & {"jax", "jaxlib"} == set()


@pytest.mark.parametrize("name", shardc._HOMES)
def test_every_public_name_loads_on_first_use(name: str) -> None:
    assert getattr(shardc, name).__name__ == name
    assert name in dir(shardc)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shardc' has no attribute 'pmap'"):
        shardc.pmap  # noqa: B018
