"""What plans predict beside what XLA compiled: bytes of collectives, peak memory of a device.

    python benchmarks/predicted.py                          all programs
    python benchmarks/predicted.py --programs mlp,conv --meshes 8,2x4
    python benchmarks/predicted.py --format json -o benchmarks/results/predicted.json

Each program of tests/py/programs.py is planned as one stage on each mesh, and as a pipeline of two
stages and four microbatches on half of the devices each; then it is compiled for 8 virtual CPU
devices. Compared are

collectives  bytes of the results on one device in a step, summed by kind and replica groups: those
             that the plan lists against those in the optimised HLO. XLA's rewrites for CPUs are
             undone: several collectives become one over a tuple, 16-bit floats travel as 32-bit.
peak         bytes on one device at the peak of a step: the plan's against arguments + results
             - results in place of arguments + temporaries of the program that runs, by XLA's own
             analysis, and what the runtime keeps for others meanwhile.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax

import shardc
import tests.py.conftest  # noqa: F401  8 virtual devices, before JAX starts
from shardc.api.stages import Compiled
from tests.py.compiled_step import compiled_collectives, compiled_peak_bytes, planned_collectives
from tests.py.parallel_gpt import LIMIT_BYTES, tight_gpt
from tests.py.programs import PROGRAMS, build
from tests.py.table import CLUSTER, ONE_MICROBATCH_ONLY

MESHES = ("8", "2x4", "2x2x2", "2 stages of 2x2")
STAGES, MICROBATCHES = 2, 4  # of the pipelines
TIGHT = "gpt, tight"  # tests/py/parallel_gpt.py, always as a pipeline
Row = dict[str, Any]

MODEL = """\
The model assumes program order: op after op, and the functions of a stage one after the
other. A device holds:

- arguments at all times, and also their next values unless they are donated;
- accumulators at all times; the stash of all microbatches in flight;
- results of a function from its beginning, because XLA allocates them before it runs (what a loop
  returns is written there, not held twice), to the end of the last function that reads them;
- the result of an op until its last use. Casts, reshapes, transposes, broadcasts and slices take
  no memory, because XLA fuses them into their users;
- the result of a reshard until its last user in the function is done, once for all of them. While
  it runs, also operands and results of each of its steps, and the pieces of an all-to-all. A
  partial sum that is returned whole, until it is reduced.

Not modelled: copies that XLA makes into other layouts (for convolutions, and for products with
several batch dims), savings by its fusion, and its order of ops. XLA for CPUs schedules breadth
first; programs that need over a tenth more than planned, and over a quarter of what there is, are
compiled again in least-memory order (shardc/api/recompile_for_memory.py). Here all do that need
more than planned, as on devices that have no more.
"""


def compiled(program: str, mesh: str) -> Compiled:
    """A program planned and compiled for one of `MESHES`."""
    stages, microbatches, shape = 1, 1, mesh
    if " stages of " in mesh:
        count, shape = mesh.split(" stages of ")
        stages = int(count)
        microbatches = 1 if program in ONE_MICROBATCH_ONLY else MICROBATCHES
    built = build(program)
    given: dict[str, Any] = {"donate_argnums": built.donate_argnums, "cluster": CLUSTER}
    step = shardc.jit(
        built.step,
        **given,
        stages=stages,
        microbatches=microbatches,
        schedule="1f1b",
        mesh=tuple(map(int, shape.split("x"))),
    )
    plan = step.lower(*built.args).plan().plan
    # As on devices that have no more than planned: where there is plenty, nothing is saved.
    scarce = shardc.jit(
        built.step,
        **given,
        devices=jax.devices(),
        plan=plan,
        memory_limit_bytes=plan.fullest()[1],
    )
    found: Compiled = scarce.lower(*built.args).compile()
    return found


def compare(program: str, mesh: str) -> list[Row]:
    """One row per stage of a program on a mesh."""
    step = tight_gpt() if program == TIGHT else compiled(program, mesh)
    peaks = compiled_peak_bytes(step)
    rows = []
    for stage, plan in enumerate(step.plan.stages):
        planned, real = planned_collectives(step.plan, stage), compiled_collectives(step, stage)
        differ = [key for key in {*planned, *real} if planned[key] != real[key]]
        rows.append(
            {
                "program": program,
                "mesh": mesh,
                "stage": stage,
                "collectives": len(planned),
                "planned_bytes": planned.total(),
                "compiled_bytes": real.total(),
                "differ": [
                    {
                        "kind": kind,
                        "groups": groups,
                        "planned_bytes": planned[kind, groups],
                        "compiled_bytes": real[kind, groups],
                    }
                    for kind, groups in sorted(differ)
                ],
                "planned_peak_bytes": plan.peak_bytes,
                "compiled_peak_bytes": peaks[stage],
                "peak_ratio": round(plan.peak_bytes / peaks[stage], 4),
            }
        )
    return rows


def summary(rows: list[Row]) -> dict[str, Any]:
    """The numbers that count."""
    errors = [row["peak_ratio"] - 1 for row in rows]
    return {
        "stages": len(rows),
        "stages_with_equal_collectives": sum(not row["differ"] for row in rows),
        "mean_peak_error": round(statistics.fmean(map(abs, errors)), 4),
        "most_under": round(min(errors), 4),
        "most_over": round(max(errors), 4),
    }


def line(row: Row) -> str:
    """One row for people."""
    kilo = [f"{row[key] / 1000:,.1f}" for key in ("planned_bytes", "compiled_bytes")]
    peak = [f"{row[f'{word}_peak_bytes'] / 1000:,.1f}" for word in ("planned", "compiled")]
    differ = len(row["differ"])
    agree = "all" if not differ else f"{differ} differ"
    cells = (
        row["program"],
        row["mesh"],
        row["stage"],
        *kilo,
        f"{row['collectives']}, {agree}",
        *peak,
        f"{row['peak_ratio'] - 1:+.0%}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def document(rows: list[Row], machine: dict[str, Any]) -> str:
    """The page."""
    found = summary(rows)
    return "\n".join(
        [
            "# Predicted and compiled",
            "",
            f"Written by `benchmarks/predicted.py` on {machine['date']}: jax {machine['jax']},"
            f" {machine['hardware']}.",
            "The programs of tests/py/programs.py, each on three meshes of 8 virtual CPU devices"
            f" and as a pipeline of {STAGES}",
            f"stages and {MICROBATCHES} microbatches (one if batch normalisation allows no"
            f" more); one row per stage. `{TIGHT}`: a GPT with adamw whose state"
            f" outweighs its activations, at most {LIMIT_BYTES // 1000} kB per device.",
            "",
            "**Collectives**: kB of results on one device in a step, inside the stage, and the"
            " number of pairs of kind and replica",
            "groups: those of the plan against those of the optimised HLO, pair by pair."
            f" {found['stages_with_equal_collectives']} of {found['stages']} rows",
            "agree to the byte.",
            "",
            "**Peak**: kB on one device at the peak of a step: the plan's against XLA's own"
            " analysis of the program that",
            "runs (arguments + results - aliased + temporaries) plus what the runtime keeps."
            " The error is"
            f" {found['mean_peak_error']:.1%} on",
            f"average, {found['most_under']:+.0%} at the lowest and {found['most_over']:+.0%} at"
            " the highest.",
            "",
            MODEL,
            "| program | mesh | stage | planned kB | compiled kB | pairs | planned peak | compiled"
            " peak | error |",
            "|---|---|---|---|---|---|---|---|---|",
            *map(line, rows),
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--meshes", default=",".join(MESHES))
    parser.add_argument("--hardware", default=f"{os.cpu_count()} {platform.machine()} cores")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("-o", "--output", type=Path, help="file for the JSON")
    parser.add_argument("--document", type=Path, help="page to write (docs/predicted.md)")
    options = parser.parse_args()
    rows = []
    pairs = list(itertools.product(options.programs.split(","), options.meshes.split(",")))
    for program, mesh in [*pairs, (TIGHT, MESHES[-1])]:
        found = compare(program, mesh)
        if options.format == "text":
            print(*map(line, found), sep="\n", flush=True)
        rows += found
    machine = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "hardware": options.hardware,
    }
    result = json.dumps({"machine": machine, "summary": summary(rows), "rows": rows}, indent=1)
    print(result if options.format == "json" else summary(rows))
    if options.output is not None:
        options.output.write_text(result + "\n")
    if options.document is not None:
        options.document.write_text(document(rows, machine))
    return 0 if not any(row["differ"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
