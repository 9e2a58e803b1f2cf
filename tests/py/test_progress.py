"""What takes long says so, and what does not is quiet."""

import logging
import sys
import threading
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import progress
from shardc.importer.from_file import import_file


def test_a_log_has_a_line_every_so_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = threading.Event()

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "inner" in record.getMessage() or "compiling" in record.getMessage():
                written.set()

    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    monkeypatch.delenv("SHARDC_PROGRESS", raising=False)
    handler = Waits()
    progress.LOGGER.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "shardc"), progress.shown_progress("planning"):
            progress.say("compiling 2 of 3")
            with progress.shown_progress("inner"):
                pass
            assert written.wait(30)
    finally:
        progress.LOGGER.removeHandler(handler)
    assert any("inner" in line or "compiling" in line for line in caplog.messages)
    assert not [t for t in threading.enumerate() if t.name == "shardc-progress"]


def test_it_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_PROGRESS", "0")
    with progress.shown_progress("planning"):
        progress.say("nothing hears this")
        assert not [t for t in threading.enumerate() if t.name == "shardc-progress"]


def test_nothing_is_said_outside() -> None:
    progress.say("nobody waits")


class Line:
    """The handle of a displayed line in a notebook."""

    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a notebook shows, without IPython."""
    shown: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Line:
        assert raw and display_id
        shown.append(data["text/plain"])
        return Line(shown)

    fake: Any = types.ModuleType("IPython.display")
    fake.display = display
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.delenv("SHARDC_PROGRESS", raising=False)
    return shown


def test_a_notebook_has_a_line_that_is_rewritten_and_empty_afterwards(notebook: list[str]) -> None:
    with progress.shown_progress("planning"):
        progress.say("planning 2 stages; best so far 3 ms, gap 4%")
    assert notebook == [
        "shardc",
        "shardc: planning",
        "shardc: planning 2 stages; best so far 3 ms, gap 4%",
        "",
    ]


def test_every_long_phase_of_a_first_call_is_shown(
    notebook: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))

    def step(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w) @ w

    w = np.ones((8, 8), np.float32)
    function = shardc.jit(step, stages=1, microbatches=1)
    function(w, w)
    said = [line.removeprefix("shardc: ") for line in notebook if line.startswith("shardc: ")]
    phases = ["tracing 'step'", "preparing the program", "planning", "compiling"]
    assert [line for line in said if line in phases] == phases
    assert said[-1] == "running 'step' for the first time"
    assert any(line.startswith("planning 1 stage") for line in said)
    assert any(line.startswith("compiling: ") for line in said)
    notebook.clear()
    function(w, w)
    assert notebook == []


def test_reading_a_file_is_shown(notebook: list[str], tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(
        "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"
    )
    import_file(str(path))
    assert f"shardc: reading {path}" in notebook


def test_a_terminal_is_left_to_the_users_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced function may print, or stop in a debugger."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert progress._way(users=False) is progress._on_terminal
    assert progress._way(users=True) is progress._in_log


def test_a_terminal_has_a_line_that_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_way", lambda users: progress._on_terminal)
    monkeypatch.delenv("SHARDC_PROGRESS", raising=False)
    with progress.shown_progress("planning"):
        progress.say("planning " + "x" * 200)
    assert "x" * 200 not in capsys.readouterr().err
