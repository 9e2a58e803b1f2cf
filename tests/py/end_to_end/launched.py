"""Runs the workers in several processes, by the command that users have."""

import os
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("process_worker.py")
PLANS = Path(__file__).with_name("plans_worker.py")


def launch(processes, devices, *arguments, limit=10.0, script=WORKER, cache=None, transfers="auto"):
    """The finished `shardc launch`; it ends within the limits that it keeps itself.

    Args:
        cache: a folder for compiled programs, which jobs then share.
        transfers: how processes send arrays to each other.
    """
    main = "from shardc.cli import main; main()"
    command = [sys.executable, "-c", main, "launch", "-n", str(processes)]
    command += ["--devices-per-process", str(devices), "--limit", str(limit)]
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.run(
        [*command, str(script), *map(str, arguments)],
        env={**os.environ, **(kept if cache is not None else {}), "SHARDC_TRANSFERS": transfers},
        capture_output=True,
        text=True,
        timeout=20 * limit,
        check=False,
    )
