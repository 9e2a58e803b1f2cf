"""`shardc launch`: what its processes are told, and how a job of them ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardc.cli import main
from shardc.cli.launch import _wait, environment


def launched(capfd: pytest.CaptureFixture[str], folder: Path, text: str, *options: str):
    """Exit code, standard output and standard error of a job of two whose script is `text`."""
    script = folder / "script.py"
    script.write_text("import os, signal, sys\nrank = int(os.environ['SLURM_PROCID'])\n" + text)
    result = CliRunner().invoke(main, ["launch", "-n", "2", *options, str(script), "--own", "7"])
    out, err = capfd.readouterr()
    return result.exit_code, result.stdout + out, result.stderr + err


def test_processes_get_their_rank_and_the_scripts_own_options(capfd, tmp_path):
    code, out, _ = launched(capfd, tmp_path, "print(rank, *sys.argv[1:])")
    assert code == 0
    assert sorted(out.split("\n")) == ["", "0 --own 7", "1 --own 7"]


@pytest.mark.slow
def test_a_failure_is_named_and_who_waits_behind_it_is_killed(capfd, tmp_path):
    text = "sys.exit(3) if rank else signal.pause()"
    code, _, err = launched(capfd, tmp_path, text, "--limit", "1")
    assert code == 1
    assert "a process failed (rank 1: 3)" in err and "rank 0 did not end: killed" in err


def test_failures_are_named_if_all_end_at_once(capfd):
    children = [
        subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) for code in (3, 4)
    ]
    for child in children:  # ended, but not yet asked for its code
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _wait(children, limit_s=1.0) == [3, 4]
    assert "a process failed (rank 0: 3, rank 1: 4)" in capfd.readouterr().err


@pytest.mark.slow
def test_a_stopped_process_is_named_and_killed(capfd, tmp_path):
    text = "os.kill(os.getpid(), signal.SIGSTOP) if rank else signal.pause()"
    code, _, err = launched(capfd, tmp_path, text, "--limit", "1")
    assert code == 1
    assert "rank 1 is stopped" in err and "rank 1 did not end: killed" in err


def test_json_has_the_exit_codes_and_nothing_else_is_on_standard_output(capfd, tmp_path):
    code, out, err = launched(capfd, tmp_path, "print('hello')", "--format", "json")
    assert code == 0 and json.loads(out)["exit_codes"] == [0, 0]
    assert err.count("hello") == 2


def test_the_environment_is_that_of_a_slurm_step():
    found = environment(3, 4, 2, 1234)
    assert found["SLURM_PROCID"] == "3" and found["SLURM_NTASKS"] == "4"
    assert found["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:1234"
    assert found["JAX_NUM_CPU_DEVICES"] == "2"
    assert int(environment(0, 2, 64, 1)["NPROC"]) > 64  # threads of XLA
    # On GPUs, each process has its own.
    assert found["JAX_LOCAL_DEVICE_IDS"] == "6,7"
