"""Processes that fail at seeded random moments: does every other one end in time, and say why?

    python benchmarks/faults.py                    20 runs of two processes, limit 10 s
    python benchmarks/faults.py --runs 200 --seed 1 -o faults.jsonl
    python benchmarks/faults.py --table faults.jsonl other.jsonl

Each run starts the worker of tests/py/end_to_end by `shardc launch` and lets one process fail.
Kills (SIGKILL), stops (SIGSTOP) and interrupts (SIGINT) come a random time behind what the process
says it has come to: launch, connected, start, plan, compile, steps, a save. The other faults,
those in a transfer among them, are the worker's own. A row says how long the others lived behind
the fault, the exit code, whether the error output names the process, and by whom. The numbers of
every step are checked by the worker.
Where checkpoints were saved, the job is started again, in one process: it must go on behind the
last one that was committed. All runs share one cached plan and the compiled programs of rank 0.
"""

import argparse
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "tests" / "py" / "end_to_end" / "process_worker.py"
CACHED = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / "build" / "faults"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}
# What a process comes to, and how long that lasts or so: the signal comes within.
PHASES = {
    "launch": 2.0,
    "connected": 0.2,
    "start": 1.0,
    "plan": 1.0,
    "compile": 1.5,
    "steps": 3.0,
    "save": 0.2,
}
TRANSFER = "transfer"  # between a send or a receive and its end in the other process
BEGINNING = ("launch", "connected", "start")
OWN = [(how, "") for how in ("version", "shapes", "plan", "scalar", "full")]
OWN += [(how, TRANSFER) for how in SIGNALS]
OWN += [("absent", phase) for phase in BEGINNING]
OWN += [(how, phase) for how in ("raise", "exit") for phase in (*BEGINNING, "steps")]
OWN += [(how, "steps") for how in ("rows", "gone", "caught")]  # of one process alone
KINDS = [(how, phase) for how in SIGNALS for phase in PHASES] + OWN
PATIENCE = 12  # limits behind the launch: then the job has not come to its fault
MOST_LIMITS = 3  # behind the fault: then the job hangs
SAID = {
    "version": r"rank RANK differs from rank 0 in its versions",
    "shapes": r"rank RANK differs from rank 0 in its arguments",
    "plan": r"rank RANK differs from rank 0 in its options",
    "scalar": r"differs between rank RANK and rank 0",
    "rows": r"rank RANK has come to where all agree on a plan",
}
NAMED = (
    r"rank RANK\b.*(dead|stopped|missing|gone|failed|ended|cannot|has not)|task:RANK\b"
    r"|the leader \(usually slice 0 task RANK\)"  # as jaxlib aborts
)
BY_LAUNCH = r"shardc launch: .*rank RANK(:| is| did not end)"


class Job:
    """A running `shardc launch`, and what it has said so far."""

    def __init__(self, processes: int, limit_s: float, arguments: list[str]) -> None:
        command = [*LAUNCH, "-n", str(processes), "--devices-per-process", str(2 // processes)]
        command += ["--limit", str(limit_s), str(WORKER), *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **CACHED},
        )
        self.lines: list[str] = []
        self._news: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None, "it is a pipe"
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self._news.put(line)

    def wait_for(self, text: str, timeout_s: float) -> bool:
        """Whether a line with `text` came in time."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s and (self.process.poll() is None or not self._news.empty()):
            try:
                if text in self._news.get(timeout=0.1):
                    return True
            except queue.Empty:
                continue
        return False

    def children(self) -> list[int]:
        """The processes, in the order of their ranks."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return sorted(int(number) for number in path.read_text().split())

    def end(self, timeout_s: float) -> bool:
        """Whether it ends by itself; if not it is killed."""
        try:
            self.process.wait(timeout_s)
            hung = False
        except subprocess.TimeoutExpired:
            for number in [*self.children(), self.process.pid]:
                os.kill(number, signal.SIGKILL)
            self.process.wait()
            hung = True
        self._reader.join(5)
        return not hung


def committed(folder: Path) -> list[int]:
    """The steps that are saved whole: orbax renames what is."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def run(
    how: str, phase: str, chance: random.Random, limit_s: float
) -> tuple[dict[str, Any], list[str]]:
    """One job of two processes with one fault: its row, and what it said."""
    differs = how in ("version", "shapes", "plan", "scalar")  # from rank 0
    rank = 1 if differs or how == "caught" else chance.randrange(2)
    comes = how in SIGNALS and phase in PHASES  # from here; else the worker does it itself
    wait_s = chance.uniform(0, PHASES[phase]) if comes else 0.0
    row: dict[str, Any] = {"fault": how, "phase": phase, "rank": rank, "wait_s": round(wait_s, 2)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saves = how == "full" or phase == "save"
        arguments = ["--steps", "3000"]
        if saves:
            arguments += ["--checkpoints", name, "--save-every", "5"]
        if phase == TRANSFER:
            number = str(chance.randrange(20, 400))
            arguments += ["--fault", f"{how}:{rank}:", "--at-transfer", number]
        elif not comes:
            when = phase if phase in BEGINNING else str(chance.randrange(6, 30))
            does = {"absent": "sleep"}.get(how, how)
            arguments += ["--fault", f"{does}:{rank}:{'' if differs else when}"]
        job = Job(2, limit_s, arguments)
        if not comes:
            at = "start" if differs else "fault"
            row["reached"] = job.wait_for(f"rank {rank}: at {at}\n", PATIENCE * limit_s)
        else:
            number = f" {5 * chance.randrange(1, 8)}\n" if phase == "save" else "\n"
            row["reached"] = job.wait_for(f"rank {rank}: at {phase}{number}", PATIENCE * limit_s)
            time.sleep(wait_s)
            own = job.children()
            if job.process.poll() is None and len(own) == 2:
                os.kill(own[rank], SIGNALS[how])
        fault_s = time.monotonic()
        ended = job.end(MOST_LIMITS * limit_s)
        row |= judged(row, job, ended, time.monotonic() - fault_s)
        if saves:
            row |= resumed(folder, limit_s)
    return row, job.lines


def judged(row: dict[str, Any], job: Job, ended: bool, seconds: float) -> dict[str, Any]:
    """What a job that has ended says of its fault."""
    rank, said = str(row["rank"]), "\n".join(job.lines)
    named = SAID.get(row["fault"], NAMED).replace("RANK", rank)
    others = "\n".join(line for line in job.lines if not line.startswith("shardc launch"))
    # Python drops an exception that a signal raises inside a callback of the garbage collector.
    dropped = re.search(r"Exception ignored in(.*\n){1,9}KeyboardInterrupt", said) is not None
    return {
        "dropped": dropped,
        "hung": not ended and not dropped,
        "ended_in_s": round(seconds, 1),
        "exit_code": job.process.returncode,
        "wrong": "AssertionError" in said,
        "named": bool(re.search(named, others)),
        "named_by_launch": bool(re.search(BY_LAUNCH.replace("RANK", rank), said)),
    }


def resumed(folder: Path, limit_s: float) -> dict[str, Any]:
    """Goes on in one process: behind the last step that was committed, with the same numbers?"""
    before = committed(folder)
    last = before[-1] if before else 0
    job = Job(1, limit_s, ["--steps", "2", "--checkpoints", str(folder)])
    ended = job.end(PATIENCE * limit_s)
    said = "\n".join(job.lines)
    good = ended and job.process.returncode == 0 and "rank 0: OK" in said
    return {"committed": last, "resumed": good and f"went on behind step {last}\n" in said}


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown, by fault and phase: rows of marked, earlier code are left out."""
    lines = ["| fault | when | runs | hung | wrong numbers | resumed | named | ended in, s |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for how, phase in KINDS:
        own = [
            row
            for row in rows
            if (row["fault"], row["phase"]) == (how, phase)
            and not row.get("before")
            and not row.get("dropped")
            and row.get("reached", True)
        ]
        if not own:
            continue
        again = [row["resumed"] for row in own if "resumed" in row]
        times = sorted(row["ended_in_s"] for row in own)
        spread = f"{times[0]} to {times[-1]}"
        named = f"{sum(row['named'] for row in own)}"
        only = sum(row["named_by_launch"] and not row["named"] for row in own)
        cells = [how, phase or "-", len(own), sum(row["hung"] for row in own)]
        cells += [
            sum(row["wrong"] for row in own),
            f"{sum(again)} of {len(again)}" if again else "-",
        ]
        cells += [named + (f", {only} by launch" if only else ""), spread]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=10.0, help="of shardc launch, seconds")
    parser.add_argument("--seconds", type=float, help="begins no run behind that")
    parser.add_argument("--only", help="faults, or fault:phase, with commas")
    parser.add_argument("--log", type=Path, help="a file for what bad jobs said")
    parser.add_argument(
        "--table", type=Path, nargs="+", help="prints rows that were written before"
    )
    parser.add_argument("-o", "--output", type=Path, help="rows are added to it, one per line")
    options = parser.parse_args()
    if options.table is not None:
        lines = [line for path in options.table for line in path.read_text().splitlines()]
        print(table([json.loads(line) for line in lines]))
        return 0
    asked = None if options.only is None else options.only.split(",")
    kinds = [k for k in KINDS if asked is None or k[0] in asked or ":".join(k) in asked]
    # Shells start what runs behind them with SIGINT ignored, and so would be every process here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order = random.Random(options.seed)
    bad = done = 0
    end_s = time.monotonic() + (options.seconds or 1e9)
    for number in range(options.runs):
        if time.monotonic() > end_s:
            break
        if number % len(kinds) == 0:
            order.shuffle(kinds)
        how, phase = kinds[number % len(kinds)]
        row, lines = run(how, phase, random.Random(f"{options.seed} {number}"), options.limit)
        named = row["named"] or row["named_by_launch"]
        is_bad = row["hung"] or row["exit_code"] == 0 or not (named or row["dropped"])
        is_bad = is_bad or row["wrong"] or not row.get("resumed", True)
        bad, done = bad + is_bad, done + 1
        print(number, "BAD" if is_bad else "ok", json.dumps(row), flush=True)
        if is_bad and options.log is not None:
            with options.log.open("a") as file:
                file.write("\n".join([f"--- {number}: {json.dumps(row)}", *lines, ""]))
        if options.output is not None:
            with options.output.open("a") as file:
                file.write(json.dumps({"seed": options.seed, **row}) + "\n")
    print(f"{done} runs: {bad} hung, wrong, unnamed or not resumed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
