"""The examples for several processes run as they say, alone and in a job, with equal losses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.py.end_to_end.launched import launch

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"


def alone(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(text, rank=0):
    """By step, as printed by a rank; those of others may share its line."""
    return dict(re.findall(rf"rank {rank}: step (\d+), loss (\d+\.\d+)", text))


def test_the_same_script_trains_alone_and_in_two_processes():
    """Every process reads the loss, which lies on the devices of the last stage."""
    one = losses(alone("multiprocess.py"))
    done = launch(2, 1, limit=60, script=EXAMPLES / "multiprocess.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(one) == 4 and losses(done.stdout, 0) == losses(done.stdout, 1) == one


def test_a_job_that_loses_a_process_goes_on_with_what_is_left(tmp_path):
    """With the losses of a run that nothing befell; the save of step 2 may not be complete yet."""
    whole = losses(alone("checkpoints.py", tmp_path / "whole"))
    asked = ["--processes", 2, "--kill-at", 3, "--limit", 20]
    said = alone("elastic.py", tmp_path / "hurt", *asked)
    assert said.count("supervisor: starts") == 2
    assert re.search("rank 0 of 1: goes on behind step [02]$", said, re.MULTILINE)
    after = losses(said)
    assert len(whole) == len(after) == 6
    assert [float(after[n]) for n in whole] == pytest.approx([float(w) for w in whole.values()])
