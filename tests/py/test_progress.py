"""What takes long says so, and what does not is quiet."""

import logging
import threading

import pytest

from shardc import progress


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
