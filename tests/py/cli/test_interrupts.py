"""Signals at seeded moments of planning, by the processor's clock: the end comes soon after.

Seconds of the processor, not of the wall: other processes may keep this one waiting for any time.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shardc import compiler
from shardc.cluster import Cluster
from shardc.importer.from_file import import_file
from shardc.ir.copy import copy_module
from shardc.options import PlanOptions
from shardc.plan.notes import NoteCode
from shardc.planner.plan_program import plan_program
from shardc.report.reading import read_plan
from shardc.report.words import in_words
from shardc.solver.interrupt import stoppable

GPT = Path(__file__).parents[3] / "examples" / "gpt.mlir"
KINDS = (signal.SIGINT, signal.SIGTERM)
# Of the processor, from the signal to the end: at most 1 s on a free core, and twice that where
# another process shares the core.
SOON_S = 2.5


def send_after(busy_s: float, kind: signal.Signals, sent_at: list[float], over: Any) -> None:
    """Signals this process once it has used `busy_s` more seconds of the processor."""
    start_s = time.process_time()
    while time.process_time() - start_s < busy_s:
        if over.wait(0.01):
            return
    sent_at.append(time.process_time())
    os.kill(os.getpid(), kind)


@pytest.mark.slow
def test_planning_ends_soon_after_a_signal_at_any_of_ten_moments() -> None:
    """One in each tenth of what planning takes here without a signal."""
    module = import_file(str(GPT)).module
    compiler.prepare(module)
    cluster = Cluster.load("a100-4")
    start_s = time.process_time()
    plan_program(copy_module(module), cluster, PlanOptions(time_limit_s=300.0))
    whole_s = time.process_time() - start_s
    moments = random.Random(17)
    late, kept, stopped = [], 0, 0
    for number in range(10):
        prepared, sent_at, over = copy_module(module), list[float](), threading.Event()
        busy_s, kind = (number + moments.random()) / 10 * whole_s, KINDS[number % 2]
        sender = threading.Thread(target=send_after, args=(busy_s, kind, sent_at, over))
        with stoppable(KINDS):
            sender.start()
            try:
                plan = plan_program(prepared, cluster, PlanOptions(time_limit_s=300.0))
            except KeyboardInterrupt:
                stopped += 1
            else:
                kept += NoteCode.INTERRUPTED in {note.code for note in plan.notes}
                assert in_words(read_plan(plan))
            finally:
                end_s = time.process_time()
                over.set()
                sender.join()
        if sent_at and end_s - sent_at[0] > SOON_S:
            late.append((busy_s, kind.name, end_s - sent_at[0]))
    assert not late
    assert kept > 0 and stopped > 0


def processor_s(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the processor time of another process")
@pytest.mark.parametrize(("kind", "busy_s"), [(KINDS[1], 1.0), (KINDS[1], 4.5), (KINDS[0], 7.0)])
def test_the_command_ends_soon_after_a_signal(kind: signal.Signals, busy_s: float) -> None:
    """With 130 or with the best plan; the time to tear down what planning has built counts."""
    code = "from shardc.cli import command_line; command_line()"
    command = [sys.executable, "-c", code, "plan", str(GPT), "--cluster", "a100-8", "--no-cache"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while processor_s(process.pid) < busy_s and process.poll() is None:
            time.sleep(0.01)
        assert process.returncode is None, "it was done before the signal"
        before_s = processor_s(process.pid)
        process.send_signal(kind)
        assert process.stdout is not None
        output = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 130), output
    if process.returncode == 0:
        assert "plan: " in output and "predicted: " in output
    else:
        assert output.rstrip().endswith("interrupted")
    assert used.ru_utime + used.ru_stime - before_s < SOON_S
