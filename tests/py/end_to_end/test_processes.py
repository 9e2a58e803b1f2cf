"""Real processes: the numbers of one, and an end to every failure that names its cause.

A process takes seconds of the processor to start, so jobs are few: one runs many plans, and what
can be asked of one job behind a fault is asked of it. More faults: benchmarks/faults.py.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.py.end_to_end.launched import PLANS, launch

pytestmark = pytest.mark.slow

ON_TWO = [
    "gpipe:2:1",  # a stage each
    "1f1b:4:2:fed",  # two stages each
    "1f1b:1:2:fed:moved",  # one stage over both
    "chimera:2:1:fed:moved",  # a stage and a copy of the other each
    "interleaved-1f1b:2:1",
    "zb-v:2:1",
    "hanayo:2:1",
    "1f1b:2:2:fed:host",  # in whose memory an array lies is no process's concern but its own
]
BY_COLLECTIVES = ["1f1b:2:2:fed"]
ON_FOUR = [
    "1f1b:2:1:fed",  # a stage over two
    "1f1b:2:1/2",  # two processes have nothing to do
]

FAULTS = {
    "kill:1:2": "shardc: rank 0 ends: rank 1 ",
    "kill:1: --at-transfer 30": "shardc: rank 0 ends: rank 1 ",
    "stop:1:2": "shardc: rank 0 ends: rank 1 is dead or stopped",
    "kill:0:compile": "shardc launch: a process failed (rank 0: -9",
    "interrupt:1:2": "shardc: rank 0 ends: rank 1 failed: KeyboardInterrupt",
    "unreceived:1:": "ShardcError: error[SHARDC-266]",
    "caught:1:2": "shardc: rank 0 ends: rank 1 has not begun step 3 for ",
    "gone:1:2": "shardc: rank 0 ends: rank 1 failed: InputError: error[SHARDC-262]: argument",
    "rows:1:2": "shardc: rank 0 ends: rank 1 failed: PlanError: error[SHARDC-280]: rank 0 has begun"
    " step 3, and rank 1 has come to where all agree on a plan",
    "sleep:1:launch": "shardc: rank 0 ends: rank 1 is missing",
    "sleep:0:start": "shardc: rank 1 ends: rank 0 has not come to where all agree on a plan",
}
AT_ONCE = 3  # jobs: they mostly wait


def check_plans(done, plans, processes, begin):
    for number, plan in enumerate(plans):
        said = f": {plan}: OK behind step {begin + 2 * number}: "
        assert done.stdout.count(said) == processes, (plan, done.stderr[-3000:])


def test_plans_give_the_numbers_of_jax_jit_and_what_differs_on_one_rank_is_refused(tmp_path):
    """Each behind the state that another plan has saved; actions in the order of the schedule.

    The last step of the first job has another number on rank 1, which ends the job; two others go
    on, whose messages are collectives, one of them in four processes.
    """
    done = launch(2, 2, tmp_path, *ON_TWO, "--differ", limit=30, script=PLANS)
    check_plans(done, ON_TWO, 2, 0)
    for what in ("versions", "arguments", "options"):
        said = (
            f"refused for its {what}: error[SHARDC-280]: rank 1 differs from rank 0 in its {what}"
        )
        assert done.stdout.count(said) == 2, what
    assert done.returncode == 1
    assert "SHARDC-282]: argument 'state['n']' differs between rank 1" in done.stderr
    assert "shardc: rank 0 ends: rank 1 failed: InputError" in done.stderr
    begin = 2 * len(ON_TWO)
    for processes, plans in ((2, BY_COLLECTIVES), (4, ON_FOUR)):
        done = launch(
            processes,
            4 // processes,
            tmp_path,
            *plans,
            limit=30,
            script=PLANS,
            transfers="collective",
        )
        assert done.returncode == 0, done.stderr[-3000:]
        check_plans(done, plans, processes, begin)
        begin += 2 * len(plans)


def test_every_process_ends_within_the_limit_and_names_the_cause(tmp_path):
    def job(fault):
        return launch(2, 1, "--steps", "50", "--fault", *fault.split(), cache=tmp_path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (fault, said), done in zip(FAULTS.items(), pool.map(job, FAULTS), strict=True):
            assert done.returncode == 1, fault
            assert said in done.stderr, (fault, done.stderr[-3000:])


def test_a_full_disk_ends_a_save_and_what_was_saved_before_is_there(tmp_path):
    saving = ["--checkpoints", tmp_path, "--save-every", "5"]
    done = launch(2, 1, *saving, "--steps", "50", "--fault", "full:1:12")
    assert done.returncode == 1
    assert "shardc: rank 0 ends: rank 1 failed: " in done.stderr, done.stderr[-3000:]
    last = max(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())
    assert last in (5, 10)  # the save of step 10 may still run
    again = launch(1, 2, *saving, "--steps", "2")
    assert again.returncode == 0 and f"went on behind step {last}" in again.stdout


CACHES = """
import jax, shardc
from shardc.runtime.processes.job import this_job

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
shardc.initialize()
rank = this_job().rank
jax.jit(lambda x: jax.numpy.sin(x) * (3 + rank))(1.0)
said = [name for name in ("hits", "misses") if f"/jax/compilation_cache/cache_{name}" in events]
line = f"rank {rank}: {' '.join(said)}"
print(line + chr(10), end="", flush=True)  # one write, so that the lines of processes stay apart
"""


def test_every_process_keeps_its_programs_for_the_next_start(tmp_path):
    """JAX writes to its cache in process 0 only; the programs of other stages are other ones."""
    script = tmp_path / "script.py"
    script.write_text(CACHES)
    for said in ("misses", "hits"):
        done = launch(2, 1, limit=30, script=script, cache=tmp_path / "cache")
        assert done.returncode == 0, done.stderr[-3000:]
        assert sorted(done.stdout.split("\n")) == ["", f"rank 0: {said}", f"rank 1: {said}"]
