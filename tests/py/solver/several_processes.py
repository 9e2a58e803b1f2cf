"""Several processes answer an instance together: run as a script, because JAX must not be forked.

The best mixture of their answers is taken; a process that is killed, or that has no answer, is left
out.
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

    def run(number: int) -> list[Any]:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            raise InfeasibleError("nothing fits")
        solved = iopddl.solve(problem, time_limit_s=2.0, effort_s=1.0, seed=number)
        return [replace(solved, lower_bound=float(-number), optimal=False)] * 2

    found = iopddl.together(run, 4)
    assert [each.lower_bound for each in found] == [0.0, 0.0, -1.0, -1.0]
    best = iopddl.best_of(problem, found, 0, 1.0, 0.0)
    assert best.objective <= min(each.objective for each in found)
    assert best.lower_bound >= 0.0
    late = iopddl.best_of(problem, found, 0, 0.0, 1.0)
    assert late.objective == min(each.objective for each in found) and late.lower_bound == 0.0
    print("together")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
