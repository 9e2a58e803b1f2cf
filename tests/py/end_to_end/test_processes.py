"""Real processes: the numbers of one, and an end to every failure that names its cause."""

import pytest

from tests.py.end_to_end.launched import WORKER, launch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.mark.parametrize(
    ("processes", "devices", "arguments"),
    [
        (2, 1, ["--schedule", "gpipe"]),  # a stage each
        (2, 2, ["--schedule", "1f1b", "--stages", "4", "--feed"]),  # two stages each
        (4, 1, ["--schedule", "1f1b", "--feed"]),  # a stage over two
        (2, 4, ["--stages", "1", "--feed"]),  # one stage over both
        (2, 1, ["--schedule", "chimera", "--feed"]),  # a stage and a copy of the other each
    ],
    ids=["a stage each", "two stages each", "a stage over two", "one stage over both", "copies"],
)
def test_numbers_are_those_of_one_process_and_lanes_those_of_the_schedule(
    processes, devices, arguments, checkpoints
):
    """Also of a state that another of these jobs has saved, under another plan."""
    before = sorted(int(path.name) for path in checkpoints.iterdir())
    arguments = [*arguments, "--checkpoints", str(checkpoints)]
    done = launch(processes, devices, *arguments, limit=60)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("OK rank") == processes
    assert done.stdout.count(f"went on behind step {max(before, default=0)}") == processes
    assert len(list(checkpoints.iterdir())) == len(before) + 1


def test_schedules_of_every_mechanism_give_the_numbers_of_jax_jit_on_two_processes():
    schedules = ["interleaved-1f1b", "zb-h1", "zb-v", "dualpipe-v", "hanayo", "2bp-breadth-first"]
    script = WORKER.with_name("schedules_worker.py")
    done = launch(2, 1, *schedules, limit=60, script=script)
    assert done.returncode == 0, done.stderr[-3000:]
    for schedule in schedules:
        assert done.stdout.count(f": {schedule}: ") == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill:1:2", "shardc: rank 0 ends: rank 1 "),
        ("stop:1:2", "shardc: rank 0 ends: rank 1 "),
        ("kill:1:compile", "shardc: rank 0 ends: rank 1 "),
        ("interrupt:1:2", "shardc: rank 0 ends: rank 1 failed: KeyboardInterrupt"),
        ("version:1:", "SHARDC-280]: rank 1 differs from rank 0 in its versions: 'Python"),
        ("shapes:1:", "SHARDC-280]: rank 1 differs from rank 0 in its arguments"),
        ("plan:1:", "SHARDC-280]: rank 1 differs from rank 0 in its options"),
        ("scalar:1:", "SHARDC-282]: argument 4 ('state['n']') differs between rank 1"),
        ("exit:1:start", "rank 1 is missing"),
    ],
)
def test_every_process_ends_within_the_limit_and_names_the_cause(fault, said):
    done = launch(2, 1, "--steps", "50", "--fault", fault, limit=20)
    assert done.returncode == 1
    assert said in done.stderr, done.stderr[-3000:]


def test_a_full_disk_ends_a_save_and_what_was_saved_before_is_there(tmp_path):
    saving = ["--checkpoints", str(tmp_path), "--save-every", "5"]
    done = launch(2, 1, *saving, "--steps", "50", "--fault", "full:1:12", limit=20)
    assert done.returncode == 1
    assert "shardc: rank 0 ends: rank 1 failed: " in done.stderr, done.stderr[-3000:]
    last = max(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())
    assert last in (5, 10)  # the save of step 10 may still run
    again = launch(1, 2, *saving, "--steps", "2", limit=20)
    assert again.returncode == 0 and f"went on behind step {last}" in again.stdout
