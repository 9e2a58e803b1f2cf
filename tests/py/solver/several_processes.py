"""Several processes answer an instance together: run as a script, because JAX must not be forked.

The best answer is taken; a process that is killed, or that has no answer, is left out.
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import iopddl
from shardc.errors import InfeasibleError


def main(path: Path) -> None:
    problem = iopddl.to_problem(iopddl.read(path))

    def run(seed: int) -> tuple[Any, int]:
        if seed == 2 * iopddl.SEEDS:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 3 * iopddl.SEEDS:
            raise InfeasibleError("nothing fits")
        solved = iopddl.solve(problem, time_limit_s=2.0, effort_s=1.0, seed=seed)
        worse = solved.objective + (seed == 0)
        return replace(solved, objective=worse, lower_bound=float(-seed), optimal=False), 3

    best, runs = iopddl.together(run, 0, 4)
    assert runs == 6
    assert best.objective == run(iopddl.SEEDS)[0].objective
    assert best.lower_bound == 0.0
    print("together")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
