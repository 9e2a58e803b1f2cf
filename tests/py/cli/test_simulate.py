"""`shardc simulate` and the exit codes that every subcommand shares."""

import functools
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

from shardc import cli
from shardc.cli import COMMANDS, main
from shardc.errors import InfeasibleError

BASE = ["simulate", "--schedule", "1f1b", "--stages", "4", "--microbatches", "8"]


def shardc(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_json_has_the_words_of_the_contract_and_nothing_else_is_printed() -> None:
    result = shardc(*BASE, "--format", "json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["makespan"] == 33
    assert data["bubble_ratio"] == pytest.approx(3 / 11)
    assert data["peak_activations"] == [4, 3, 2, 1]
    assert data["actions"][3][:4] == ["3F0", "3B0", "3F1", "3B1"]
    assert len(data["timeline"]) == 4 * 2 * 8


def test_the_span_leaves_out_the_wait_for_the_first_and_after_the_last_action() -> None:
    """ZB-H2 has a bubble of p - 1 before and behind what its devices do, and none between."""
    arguments = ["--stages", "4", "--microbatches", "8", "--times", "F=1,B=1,W=1"]
    result = shardc("simulate", "--schedule", "zb-h2", *arguments, "--format", "json")
    data = json.loads(result.stdout)
    assert data["makespan"] == 27
    assert data["bubble_ratio"] == pytest.approx(1 / 9)
    assert data["span_bubble_ratio"] == 0
    assert data["next_step"] == 24


@pytest.mark.parametrize(
    ("transfer", "option", "makespan"),
    [("1", [], 4), ("1", ["--no-overlap"], 5), ("2", [], 5), ("2", ["--contention"], 6)],
)
def test_senders_may_wait_and_transfers_may_take_turns(
    transfer: str, option: list[str], makespan: int
) -> None:
    """Two forwards on each of two devices, counted by hand."""
    arguments = ["--schedule", "gpipe", "--stages", "2", "--microbatches", "2", "--forward-only"]
    times = ["--times", "F=1", "--transfer", transfer, *option, "--format", "json"]
    assert json.loads(shardc("simulate", *arguments, *times).stdout)["makespan"] == makespan


def test_text_shows_the_grid_and_the_numbers() -> None:
    result = shardc(*BASE)
    assert result.exit_code == 0
    assert "0 | 0F0 0F1 0F2 0F3" in result.stdout
    assert "0.2727" in result.stdout


def test_times_transfer_and_trace(tmp_path: Path) -> None:
    trace = tmp_path / "out.json"
    extra = ["--times", "F=1,B=1,W=1,U=4", "--transfer", "0.5", "--trace", str(trace)]
    result = shardc(*BASE, *extra, "--format", "json")
    data = json.loads(result.stdout)
    assert data["makespan"] == 24 + 17 + 4
    assert data["actions"][0][-1] == "0U"
    assert len(json.loads(trace.read_text())["traceEvents"]) == 4 + 4 * 2 * 8 + 4


def test_forward_only_has_no_backward() -> None:
    data = json.loads(shardc(*BASE, "--forward-only", "--format", "json").stdout)
    assert data["makespan"] == 11
    assert not any("B" in action for device in data["actions"] for action in device)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--schedule", "zigzag"], "SHARDC-240"),
        (["--stages", "0"], "SHARDC-242"),
        (["--chunks", "2"], "SHARDC-242"),
        (["--times", "F=x"], "SHARDC-180"),
        (["--times", "Q=1"], "SHARDC-180"),
        (["--times", "F=-1"], "SHARDC-180"),
        (["--slices", "2"], "SHARDC-242"),
        (["--transfer", "soon"], "SHARDC-180"),
        (["--weight-share", "2"], "SHARDC-180"),
        (["--max-activations", "2"], "SHARDC-245"),
        (["--schedule", "gone.grid"], "SHARDC-241"),
        (["--times", "F=nan"], "SHARDC-180"),
        (["--transfer", "-1"], "SHARDC-180"),
        (["--trace", "/does/not/exist/trace.json"], "SHARDC-180"),
    ],
)
def test_bad_input_is_exit_2_with_a_code(arguments: list[str], code: str) -> None:
    result = shardc(*BASE, *arguments)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert "help:" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments", [["simulate"], ["simulate", "--stages", "many"], ["fly"], ["--fly"]]
)
def test_bad_usage_is_exit_2(arguments: list[str]) -> None:
    assert shardc(*arguments).exit_code == 2


def test_help_lists_the_commands_without_loading_them() -> None:
    loaded = {name for name in sys.modules if name.startswith("shardc.cli.")}
    result = shardc("--help")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in COMMANDS)
    assert {name for name in sys.modules if name.startswith("shardc.cli.")} == loaded


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (InfeasibleError("it does not fit"), 3, "error[SHARDC-220]: it does not fit"),
        (
            ValueError("oh"),
            4,
            "error[SHARDC-999]: a bug in shardc while running the command: ValueError: oh",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.FileError("x.mlir", "gone"), 2, "Could not open file 'x.mlir'"),
    ],
)
def test_errors_become_exit_codes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, exit_code: int, said: str
) -> None:
    def fail() -> NoReturn:
        raise error

    module = ModuleType("shardc.cli.plan")
    module.command = click.command(fail)  # type: ignore[attr-defined]  # a module made by hand
    monkeypatch.setitem(sys.modules, "shardc.cli.plan", module)
    result = shardc("plan")
    assert (result.exit_code, said in result.stderr) == (exit_code, True)


@pytest.mark.parametrize("signalled", [False, True])
def test_only_an_interrupted_process_ends_without_teardown(
    monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr(cli, "was_signalled", lambda: signalled)
    for code in (0, 2, 130):
        monkeypatch.setattr(cli, "main", functools.partial(sys.exit, code))
        with pytest.raises(SystemExit):
            cli.command_line()
    assert ended == [0, 2, 130] * signalled


@pytest.mark.slow
def test_the_traceback_of_a_bug_is_printed_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise ValueError("oh")

    module = ModuleType("shardc.cli.plan")
    module.command = click.command(fail)  # type: ignore[attr-defined]  # a module made by hand
    monkeypatch.setitem(sys.modules, "shardc.cli.plan", module)
    monkeypatch.setenv("SHARDC_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in shardc("plan").stderr
