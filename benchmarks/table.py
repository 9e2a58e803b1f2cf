"""Run every program x stages x microbatches x schedule and write docs/table.md.

Each cell runs 3 steps on 8 virtual CPU devices in float64 and in its own precision, and is compared
with `jax.jit` on one device (shardc/check/numerics.py says how). `make test-table` runs all cells;
a file of results (--results) keeps what is done, so that a stopped run goes on where it was.

    python benchmarks/table.py [--subset] [--dtypes float64] [--workers 2] [--results FILE]
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import tests.py.conftest  # noqa: F401  8 virtual devices, before JAX starts
from shardc.errors import ShardcError
from tests.py.end_to_end.test_table import CI_CELLS
from tests.py.table import NEARBY_RUNS, STEPS, Cell, all_cells, verdict

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "table.md"
DTYPES = ("float64", "float32")
Result = dict[str, Any]


def run_cell(cell: Cell, dtype: str) -> Result:
    """One line of the results: passed, errors, and the first problem if there is one."""
    start_s = time.perf_counter()
    result: Result = {"cell": list(cell), "dtype": dtype}
    try:
        _, report = verdict(cell, dtype)
    except ShardcError as error:
        return {**result, "passed": False, "problem": error.message}
    problems = [f"{leaf.name}: {leaf.problem}" for leaf in report.failures]
    return {
        **result,
        "passed": report.passed,
        "error": report.max_relative_error,
        "one_device_error": report.reference_error,
        "beyond_one_run": report.beyond_one_run,
        "problem": problems[0] if problems else "",
        "seconds": round(time.perf_counter() - start_s, 1),
    }


def run_program(program: str, jobs: list[tuple[Cell, str]], path: str) -> list[Result]:
    """All jobs of one program in one process: they share the reference."""
    results = []
    for cell, dtype in jobs:
        result = run_cell(cell, dtype)
        with open(path, "a") as file:
            file.write(json.dumps(result) + "\n")
        word = "holds" if result["passed"] else f"FAILS: {result['problem']}"
        print(f"{cell} {dtype}: {word}", flush=True)
        results.append(result)
    return results


def load(path: Path) -> dict[tuple[Cell, str], Result]:
    """Results by cell and dtype; the last one counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {(Cell(*each["cell"]), each["dtype"]): each for each in found}


def table(results: dict[tuple[Cell, str], Result]) -> str:
    """The document."""
    cells = all_cells()
    done = {cell for cell, _ in results}
    starred = sum(each.get("beyond_one_run", 0) > 0 for each in results.values())
    failed = sorted({str(cell) for (cell, _), each in results.items() if not each["passed"]})
    lines = [
        "# Where shardc holds",
        "",
        "Written by `make test-table` (benchmarks/table.py) from the programs of"
        " tests/py/programs.py.",
        "",
        "Each entry is the largest relative error over all leaves of the state and the loss, after"
        f" {STEPS} steps on 8",
        "virtual CPU devices: in float64 (at most 1e-9 passes), and in the program's own precision,"
        " with the error that",
        "one device makes there in brackets (adam amplifies rounding where a gradient vanishes;"
        " shardc/check/numerics.py",
        "says what passes). A star marks entries where a leaf has more than four times the error of"
        " one run on one",
        f"device, but no more than four times that of the worst of {NEARBY_RUNS} runs on one device"
        " that differ by roundings.",
        "",
        f"{len(done)} of {len(cells)} cells were run: "
        + ("all of them hold." if not failed else f"{len(failed)} fail: {', '.join(failed)}.")
        + f" {starred} entries have a star. A dash is a cell that was not run.",
        "",
        "| program | stages | microbatches | gpipe, float64 | gpipe | 1f1b, float64 | 1f1b |",
        "|---|---|---|---|---|---|---|",
    ]
    for first in dict.fromkeys(cell[:3] for cell in cells):
        entries = [
            entry(results.get((Cell(*first, schedule), dtype)))
            for schedule in ("gpipe", "1f1b")
            for dtype in DTYPES
        ]
        lines.append(f"| {' | '.join(map(str, first))} | {' | '.join(entries)} |")
    return "\n".join(lines) + "\n"


def entry(result: Result | None) -> str:
    """One entry of the table."""
    if result is None:
        return "-"
    if not result["passed"]:
        return "**fails**"
    star = "*" if result.get("beyond_one_run") else ""
    text = f"{result['error']:.1e}{star}"
    return text if result["dtype"] == "float64" else f"{text} ({result['one_device_error']:.1e})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subset", action="store_true", help="only the cells that CI runs")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "table.jsonl")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = load(options.results)
    cells = CI_CELLS if options.subset else all_cells()
    jobs: dict[str, list[tuple[Cell, str]]] = {}
    for cell in cells:
        for dtype in options.dtypes.split(","):
            if (cell, dtype) not in known:
                jobs.setdefault(cell.program, []).append((cell, dtype))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=spawn, max_tasks_per_child=1) as pool:
        futures = [
            pool.submit(run_program, program, todo, str(options.results))
            for program, todo in jobs.items()
        ]
        for future in as_completed(futures):
            future.result()
    results = load(options.results)
    TARGET.write_text(table(results))
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0 if all(each["passed"] for each in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
