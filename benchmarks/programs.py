"""Run public programs, StableHLO files and JAX scripts, beside one device; write docs/programs.md.

    python benchmarks/programs.py DIR [--pattern '*.tiny.mlir*'] [--stages 1,2,auto]
        [--microbatches 1,2,auto] [--timeout 600] [--results FILE] [-o FILE]

Every StableHLO file under DIR (plain or gzipped) goes through `shardc run --check`, and every
script in DIR that has a function `build` through benchmarks/script_program.py, by the interpreter
that runs this (it needs the scripts' packages). Each is planned for 8 virtual CPU devices with
every combination, run for two steps and compared with one device by shardc/check/numerics.py. Each
run is a process of its own with a time limit; a file of results (--results) keeps what is done.
"""

import argparse
import datetime
import gzip
import itertools
import json
import os
import platform
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
        "stage_flops": answer["stage_flops"],
        "planning_time_s": round(answer["planning_time_s"], 1),
        "compile_time_s": round(answer["compile_time_s"], 1),
        "version": version(),
        "notes": answer["notes"],
    }


def version() -> str:
    """The commit that ran, with a `+` behind it where files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip() or "unknown"


def less_than_asked(each: Result) -> bool:
    """Whether a run had other numbers of stages or microbatches than it was asked for."""
    asked = (each["stages"], each["microbatches"])
    ran = each.get("ran", asked)
    return any(a not in ("auto", str(r)) for a, r in zip(asked, ran, strict=True))


def shares(flops: list[int]) -> str:
    """Per cent of the FLOPs that each stage holds: `44 / 56`."""
    return " / ".join(f"{flop / max(sum(flops), 1):.0%}".rstrip("%") for flop in flops)


def table(results: list[Result]) -> str:
    """The document."""
    holding = sum(each["outcome"] == "holds" for each in results)
    refused = sum(each["outcome"].startswith("refused") for each in results)
    fewer = sum(less_than_asked(each) for each in results)
    versions = sorted({each["version"] for each in results if "version" in each})
    lines = [
        "# Public programs",
        "",
        f"Written by `benchmarks/programs.py` on {datetime.date.today()}: StableHLO files and JAX",
        f"scripts (`.py`) run on {DEVICES} virtual CPU devices, {STEPS} steps each. Errors are the"
        " largest over all results,",
        "relative to one device: in float64, and in the program's own precision with that of one"
        " device in brackets.",
        "`ran` is stages x microbatches; `FLOPs` says how many per cent of them each stage holds."
        " Seconds are those of",
        f"planning, of compilation, and of the whole command with its checks, on"
        f" {os.cpu_count()} shared {platform.machine()} cores.",
        f"Commits that ran: {', '.join(versions)}.",
        "",
        f"{len(results)} runs: {holding} hold, {refused} are refused,"
        f" {len(results) - holding - refused} fail or were not done in time; {fewer} ran with fewer"
        " stages or microbatches",
        "than asked for, for the reasons below the table.",
        "",
        "| program | stages | microbatches | ran | FLOPs | float64 | own precision | plan s"
        " | compile s | all s | outcome |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        done = "ran" in each
        cells = [
            " x ".join(map(str, each["ran"])) if done else "-",
            shares(each["stage_flops"]) if done else "-",
            f"{each['float64_error']:.1e}" if done else "-",
            f"{each['error']:.1e} ({each['one_device_error']:.1e})" if done else "-",
            str(each.get("planning_time_s", "-")),
            str(each.get("compile_time_s", "-")),
            str(each.get("seconds", "-")),
            each["outcome"],
        ]
        asked = [each["program"], each["stages"], each["microbatches"]]
        lines.append(f"| {' | '.join([*asked, *cells])} |")
    lines += [
        "",
        "Why some ran with less than asked for, and what no split is known for:",
        "",
    ]
    said: dict[tuple[str, str], list[str]] = {}
    for each in results:
        for note in each.get("notes", []):
            if "because splitting it costs more" in note:
                continue  # a choice, which `shardc plan` explains
            combination = f"{each['stages']} x {each['microbatches']}"
            said.setdefault((each["program"], note), []).append(combination)
    for program in dict.fromkeys(each["program"] for each in results):
        for (owner, note), combinations in said.items():
            if owner == program:
                lines.append(f"- {program} ({', '.join(combinations)}): {note}")
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
