"""Runs the worker in several processes, by the command that users have."""

import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("process_worker.py")


def launch(processes: int, devices: int, *arguments: str, limit: float = 10.0, script=WORKER):
    """The finished `shardc launch`; it ends within the limits that it keeps itself."""
    main = "from shardc.cli import main; main()"
    command = [sys.executable, "-c", main, "launch", "-n", str(processes)]
    command += ["--devices-per-process", str(devices), "--limit", str(limit)]
    return subprocess.run(
        [*command, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=20 * limit,
        check=False,
    )
