"""A supervisor that starts a job again on what is left when a process of it fails.

    python examples/elastic.py /tmp/run                 4 processes, then 3, and so on
    python examples/elastic.py /tmp/run --kill-at 3     the last of them kills itself at step 3

On a cluster this is the work of SLURM (`--requeue`) or Kubernetes; here it is a loop around
`shardc launch`. What makes it possible is in checkpoints.py: every start plans for the devices that
are there, restores into that plan, and goes on with the next batch of the same order.
"""

import argparse
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("checkpoints.py")
LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of the checkpoints")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--limit", type=float, default=60.0, help="of shardc launch, seconds")
    parser.add_argument("--kill-at", type=int, help="as of checkpoints.py, in the first job only")
    options = parser.parse_args()
    count, hurt = options.processes, options.kill_at
    while count >= 1:
        asked = [] if hurt is None else ["--kill-at", str(hurt)]
        job = [*LAUNCH, "-n", str(count), "--limit", str(options.limit)]
        print(f"supervisor: starts {count} processes", flush=True)
        if subprocess.run([*job, str(WORKER), options.folder, *asked], check=False).returncode == 0:
            return 0
        count, hurt = count - 1, None  # here the loss of one; a cluster says what is left
    return 1


if __name__ == "__main__":
    sys.exit(main())
