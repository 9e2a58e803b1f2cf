"""Processes that fail at seeded random moments: does every other one end in time, and say why?

    python benchmarks/faults.py                    20 runs of two processes, limit 10 s
    python benchmarks/faults.py --runs 200 --seed 1 --format json -o faults.json

Each run starts the worker of tests/py/end_to_end by `shardc launch`, and one process is killed
(SIGKILL) or stopped (SIGSTOP) a random time after the start: while JAX starts, while the plan is
made, while programs are compiled, in a step, in a transfer. A row says how long the others lived
behind that, their exit codes, and whether their standard error names the process. A run that comes
to its end before the fault counts as finished: its numbers were checked by the worker.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "tests" / "py" / "end_to_end" / "process_worker.py"
LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]


def children(parent: int) -> list[int]:
    """The processes that `shardc launch` started, in the order of their ranks."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return sorted(int(number) for number in path.read_text().split())


def run(how: str, rank: int, after_s: float, processes: int, limit_s: float) -> dict[str, Any]:
    """One job with one fault."""
    command = [*LAUNCH, "-n", str(processes), "--limit", str(limit_s), str(WORKER)]
    job = subprocess.Popen(
        [*command, "--steps", "2000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while len(found := children(job.pid)) < processes and job.poll() is None:
        time.sleep(0.01)
    time.sleep(after_s)
    if job.poll() is None:
        os.kill(found[rank], signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    start_s = time.monotonic()
    try:
        said, _ = job.communicate(timeout=10 * limit_s)
        hung = False
    except subprocess.TimeoutExpired:
        for number in found:
            os.kill(number, signal.SIGKILL)
        said, _ = job.communicate()
        hung = True
    return {
        "fault": how,
        "rank": rank,
        "after_s": round(after_s, 1),
        "ended_in_s": round(time.monotonic() - start_s, 1),
        "exit_code": job.returncode,
        "hung": hung,
        "finished": job.returncode == 0,
        "wrong": "AssertionError" in said,
        "named": bool(re.search(rf"rank {rank}\b.*(dead|stopped|missing|gone|failed|: -9)", said)),
        "last_words": said.strip().splitlines()[-1][:160] if said.strip() else "",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=10.0, help="of shardc launch, seconds")
    parser.add_argument("--latest", type=float, default=30.0, help="latest fault, seconds")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    rows = []
    for number in range(options.runs):
        how, rank = chance.choice(("kill", "stop")), chance.randrange(options.processes)
        after_s = chance.uniform(0.5, options.latest)
        rows.append(run(how, rank, after_s, options.processes, options.limit))
        if options.format == "table":
            print(number, *(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    bad = [row for row in rows if row["hung"] or row["wrong"]]
    unnamed = [row for row in rows if not row["finished"] and not row["named"]]
    report = {"rows": rows, "hung_or_wrong": len(bad), "unnamed": len(unnamed)}
    if options.format == "json":
        print(json.dumps(report, indent=1))
    else:
        print(f"{len(rows)} runs: {len(bad)} hung or wrong, {len(unnamed)} did not name the rank")
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
