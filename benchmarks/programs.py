"""Run public programs, StableHLO files and JAX scripts, beside one device; write docs/programs.md.

    python benchmarks/programs.py DIR [--pattern '*.tiny.mlir*'] [--stages 1,2,auto]
        [--microbatches 1,2,auto] [--timeout 600] [--results FILE] [-o FILE]

Every StableHLO file under DIR (plain or gzipped) goes through `shardc run --check`, and every
script in DIR that has a function `build` through benchmarks/script_program.py, by the interpreter
that runs this (it needs the scripts' packages). Each is planned for 8 virtual CPU devices with
every combination, run for two steps and compared with one device by shardc/numerics.py. Each run
is a process of its own with a time limit; a file of results (--results) keeps what is done.
"""

import argparse
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEVICES = 8
STEPS = 2
REFUSED = 2  # exit code of the command: docs/errors.md
Result = dict[str, Any]


def name_of(path: Path) -> str:
    """How the table calls a program: a script by its whole name."""
    return path.name if path.suffix == ".py" else path.name.split(".")[0]


def programs(directory: Path, pattern: str) -> list[Path]:
    """The StableHLO files under a directory, and the scripts in it that build a step."""
    scripts = [p for p in directory.glob("*.py") if re.search(r"^def build\(", p.read_text(), re.M)]
    return sorted([*directory.rglob(pattern), *scripts], key=lambda p: p.name)


def run(path: Path, stages: str, microbatches: str, timeout_s: float) -> Result:
    """One line of the results."""
    command = [sys.executable, "-W", "ignore"]
    if path.suffix == ".py":
        command += [str(ROOT / "benchmarks" / "script_program.py"), str(path)]
    else:
        command += ["-c", "from shardc.cli import main; raise SystemExit(main())", "run", str(path)]
        command += ["--devices", str(DEVICES), "--check", "--format", "json"]
    command += ["--stages", stages, "--microbatches", microbatches, "--steps", str(STEPS)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_NUM_CPU_DEVICES": str(DEVICES)}
    asked = {"program": name_of(path), "stages": stages, "microbatches": microbatches}
    start_s = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return {**asked, "outcome": f"not done in {timeout_s:.0f} s"}
    seconds = round(time.perf_counter() - start_s, 1)
    if not done.stdout.strip():
        written = done.stderr.splitlines()
        lines = [line for line in written if line.startswith("error")] or written[-1:]
        word = "refused" if done.returncode == REFUSED else "crashed"
        reason = lines[0] if lines else f"exit code {done.returncode}"
        return {**asked, "outcome": f"{word}: {reason}", "seconds": seconds}
    answer = json.loads(done.stdout.splitlines()[-1] if path.suffix == ".py" else done.stdout)
    return {
        **asked,
        "outcome": "holds" if done.returncode == 0 else "FAILS: " + answer["failures"][0],
        "seconds": seconds,
        "ran": [answer["num_stages"], answer["num_microbatches"]],
        "error": answer["max_relative_error"],
        "one_device_error": answer["reference_error"],
        "float64_error": answer["float64_max_relative_error"],
        "step_time_s": answer.get("step_time_s"),
        "notes": answer["notes"],
    }


def table(results: list[Result]) -> str:
    """The document."""
    holding = sum(each["outcome"] == "holds" for each in results)
    refused = sum(each["outcome"].startswith("refused") for each in results)
    lines = [
        "# Public programs",
        "",
        f"Written by `benchmarks/programs.py`: StableHLO files and JAX scripts (`.py`) run on"
        f" {DEVICES} virtual CPU devices, {STEPS} steps each.",
        "Errors are the largest over all results, relative to one device: in float64, and in the"
        " program's own precision",
        "with that of one device in brackets. The seconds are those of the whole command, planning,"
        " compilation and the",
        "check included. What ran may be less than what was asked for with `auto`.",
        "",
        f"{len(results)} runs: {holding} hold, {refused} are refused,"
        f" {len(results) - holding - refused} fail.",
        "",
        "| program | stages | microbatches | ran | float64 | own precision | seconds | outcome |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        ran = " x ".join(map(str, each["ran"])) if "ran" in each else "-"
        wide = f"{each['float64_error']:.1e}" if "ran" in each else "-"
        own = f"{each['error']:.1e} ({each['one_device_error']:.1e})" if "ran" in each else "-"
        outcome = "; ".join([each["outcome"], *each.get("notes", [])])
        lines.append(
            f"| {each['program']} | {each['stages']} | {each['microbatches']} | {ran} | {wide}"
            f" | {own} | {each.get('seconds', '-')} | {outcome} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pattern", default="*.tiny.mlir*")
    parser.add_argument("--stages", default="1,2,auto")
    parser.add_argument("--microbatches", default="1,2,auto")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "programs.jsonl")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "programs.md")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    keys = ("program", "stages", "microbatches")
    known = {tuple(each[key] for key in keys): each for each in map(json.loads, lines)}
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in programs(options.directory, options.pattern):
            file = path
            if path.suffix == ".gz":  # unpacked, so that notes name lines that can be looked up
                file = Path(scratch) / path.stem
                file.write_bytes(gzip.decompress(path.read_bytes()))
            combinations = itertools.product(
                options.stages.split(","), options.microbatches.split(",")
            )
            for stages, microbatches in combinations:
                key = (name_of(path), stages, microbatches)
                if key not in known:
                    known[key] = run(file, stages, microbatches, options.timeout)
                    with options.results.open("a") as out:
                        out.write(json.dumps(known[key]) + "\n")
                    print(*key, known[key]["outcome"], flush=True)
                results.append(known[key])
            options.output.write_text(table(results))
    print(f"wrote {options.output}")
    return (
        0 if not any("FAILS" in r["outcome"] or "crashed" in r["outcome"] for r in results) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
