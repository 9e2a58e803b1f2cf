"""Interrupts `shardc plan` at seeded moments, and says how long it took to end, and how.

    python tools/interrupt_planning.py examples/gpt.mlir --cluster a100-8 --tries 20

Prints one line per moment: when the signal came, seconds until the end by the clock and of the
processor, the exit code (0 with the best plan, or 130), and the largest of these times. A machine
with other work to do is slower by the clock.
"""

import argparse
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time


def interrupted(
    file: str, cluster: str, after_s: float, kind: signal.Signals
) -> tuple[float, float, int]:
    """Seconds from the signal to the end of the command, by the clock and of the processor, and
    its exit code."""
    command = [
        sys.executable,
        "-c",
        "from shardc.cli import command_line; command_line()",
        "plan",
        file,
    ]
    with subprocess.Popen(
        [*command, "--cluster", cluster, "--no-cache"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        time.sleep(after_s)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy_s = _processor_s(process.pid)
        process.send_signal(kind)
        start_s = time.monotonic()
        output, _ = process.communicate()
    took_s, after = time.monotonic() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 130):
        print(output)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took_s, used_s - busy_s, process.returncode


def _processor_s(pid: int) -> float:
    """Seconds of the processor that a process has used (Linux)."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--cluster", default="cpu8")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=15.0, help="last moment, in seconds")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    worst_s, most_s, wrong = 0.0, 0.0, 0
    for number in range(arguments.tries):
        after_s = moments.uniform(0.5, arguments.longest)
        kind = (signal.SIGINT, signal.SIGTERM)[number % 2]
        took_s, used_s, code = interrupted(arguments.file, arguments.cluster, after_s, kind)
        print(
            f"{kind.name} after {after_s:.2f} s: exit {code} {took_s:.2f} s later,"
            f" {used_s:.2f} s of the processor",
            flush=True,
        )
        wrong += code not in (0, 130)
        worst_s, most_s = max(worst_s, took_s), max(most_s, used_s)
    print(
        f"the longest took {worst_s:.2f} s, {most_s:.2f} s of the processor;"
        f" {wrong} of {arguments.tries} ended otherwise"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
