"""Which process of a job is slow."""

import json

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import shardc
from shardc.cli import main
from shardc.report.stragglers import RankTimes, read_times, slowness


def times(rank, factor, predicted=(1.0, 2.0)):
    """A rank whose programs all take `factor` times what was predicted."""
    actions = {f"{rank}F{n}": (factor * seconds, seconds) for n, seconds in enumerate(predicted)}
    return RankTimes(rank, f"host{rank}", 3, actions)


def test_a_process_is_slow_against_the_others_whatever_its_programs_take(tmp_path):
    for each in (times(0, 30.0), times(1, 63.0, (0.1, 0.4)), times(2, 30.0), times(3, 33.0)):
        each.save(tmp_path)
    found = {rank: each.programs for rank, each in slowness(read_times(tmp_path)).items()}
    assert found == pytest.approx({0: 30 / 33, 1: 63 / 30, 2: 30 / 33, 3: 33 / 30})
    result = CliRunner().invoke(main, ["doctor", "--straggler", str(tmp_path), "--format", "json"])
    rows = json.loads(result.output)["ranks"]
    assert result.exit_code == 1 and [row["is_slow"] for row in rows] == [False, True, False, False]
    result = CliRunner().invoke(main, ["doctor", "--straggler", str(tmp_path)])
    assert (
        "rank 1 on host1: 2.10 times as slow as the others, 1.00 times alone, a straggler"
        in result.output
    )


def test_programs_that_span_all_processes_leave_the_slow_one_to_the_probe(tmp_path):
    """They take equally long everywhere."""
    for rank, probe_s in enumerate((2e-3, 2e-3, 9e-3)):
        msgspec.structs.replace(times(rank, 30.0), probe_s=probe_s).save(tmp_path)
    found = slowness(read_times(tmp_path))
    assert [each.programs for each in found.values()] == [1.0, 1.0, 1.0]
    assert [each.is_slow for each in found.values()] == [False, False, True]
    result = CliRunner().invoke(main, ["doctor", "--straggler", str(tmp_path)])
    assert result.exit_code == 1
    assert "rank 2 on host2: 1.00 times as slow as the others, 4.50 times alone, a str" in (
        result.output
    )


def test_equal_processes_are_well(tmp_path):
    for rank in range(2):
        times(rank, 5.0).save(tmp_path)
    result = CliRunner().invoke(main, ["doctor", "--straggler", str(tmp_path)])
    assert result.exit_code == 0 and "straggler" not in result.output


@pytest.mark.parametrize("text", ["{", '{"rank": 1}', None], ids=["cut", "empty", "alone"])
def test_files_that_cannot_be_compared_are_refused(tmp_path, text):
    times(0, 1.0).save(tmp_path)
    if text is not None:
        (tmp_path / "rank-1.json").write_text(text)
    result = CliRunner().invoke(main, ["doctor", "--straggler", str(tmp_path)])
    assert result.exit_code == 2 and "SHARDC-180" in result.output


@pytest.mark.slow
def test_a_process_writes_the_times_of_its_programs(tmp_path):
    f = shardc.jit(lambda w, x: jnp.sum(jnp.tanh(x @ w)), stages=1, microbatches=1)
    w, x = np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)
    with (
        pytest.raises(shardc.ShardcError, match="no plan ran twice"),
        shardc.rank_times(tmp_path),
    ):
        f(w, x)
    with shardc.rank_times(tmp_path):
        for _ in range(3):
            f(w, x)
    (path,) = tmp_path.iterdir()
    written = json.loads(path.read_text())
    assert path.name == "rank-0.json" and written["num_steps"] == 2
    assert all(a > 0 and b > 0 for a, b in written["actions"].values())
    assert written["probe_s"] > 0


def test_a_folder_that_cannot_be_made_is_refused_before_the_steps(tmp_path):
    (tmp_path / "file").touch()
    ran = []
    with (
        pytest.raises(shardc.ShardcError, match="the times of a rank"),
        shardc.rank_times(tmp_path / "file" / "times"),
    ):
        ran.append(1)
    assert not ran
