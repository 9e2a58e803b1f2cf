"""Plan public programs at their full sizes for a large cluster and write docs/full_programs.md.

    python benchmarks/full_programs.py DIR [--pattern '*.full.mlir*'] [--cluster h100-64]
        [--time-limit S] [--timeout 1800] [--gallery] [--results FILE] [-o FILE]

Every file of DIR (plain or gzipped) that the pattern names is planned by `shardc plan`, a process
of its own, with its own choice of stages, microbatches and mesh; none of the devices is needed. The
rows of other programs stay, with their dates; `--gallery` keeps the plans for
`tools/write_gallery.py`. Times are those of the whole command, by the clock
and of the processor: on a busy machine the second is what says something.
"""

import argparse
import datetime
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOES_NOT_FIT = 3  # exit code of the command
Result = dict[str, Any]


def plan(path: Path, given: list[str], timeout_s: float, kept: Path) -> Result:
    """One row: what planning one file took, and what came of it; the plan goes to `kept`."""
    command = [sys.executable, "-c", "from shardc.cli import main; raise SystemExit(main())"]
    command += ["plan", str(path), *given, "--format", "json", "-o", str(kept)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    row: Result = {"program": path.name.split(".")[0], "date": date}
    start_s = time.perf_counter()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdout=output, stderr=errors, env={**os.environ, "PYTHONPATH": paths}
        )
        while True:
            process, status, usage = os.wait4(child.pid, os.WNOHANG)
            if process:
                break
            if time.perf_counter() - start_s > timeout_s:
                child.kill()
            time.sleep(0.1)
        child.returncode = os.waitstatus_to_exitcode(status)
        row["seconds"] = round(time.perf_counter() - start_s, 1)
        row["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 1)
        row["peak_gib"] = round(usage.ru_maxrss / (1 << 20), 2)
        row["load_average"] = round(os.getloadavg()[0], 1)
        output.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            said = errors.read().decode(errors="replace").splitlines()
            lines = [line for line in said if line.startswith("error")]
            word = "does not fit" if child.returncode == DOES_NOT_FIT else "FAILS"
            reason = lines[0] if lines else f"exit code {child.returncode}"
            return {**row, "outcome": f"{word}: {reason}"}
        return {**row, "outcome": "planned", **_summary(json.load(output))}


def _summary(answer: Result) -> Result:
    stages = answer["stages"]
    num_flops = sum(stage["num_flops"] for stage in stages)
    whole = sum(stage["num_whole_flops"] for stage in stages)
    objective = answer["objective"]
    return {
        "ops": answer["num_ops"],
        "meshes": ["x".join(map(str, stage["mesh"])) for stage in stages],
        "microbatches": answer["num_microbatches"],
        "step_time_s": answer["predicted_step_time_s"],
        "device_gib": answer["predicted_peak_bytes_per_device"] / (1 << 30),
        "sharded_flops": 1.0 - whole / num_flops if num_flops else 1.0,
        "gap": 1.0 - answer["lower_bound"] / objective if objective else 0.0,
        "notes": answer["notes"],
    }


def table(report: Result) -> str:
    """The document."""
    machine = report["machine"]
    lines = [
        "# Full-size programs",
        "",
        "Written by `benchmarks/full_programs.py`: `shardc plan` of public StableHLO files for the"
        " cluster",
        f"`{report['cluster']}`, planned without its devices, on {machine['cores']}"
        f" {machine['processor']} cores. `load` is the number of processes",
        "competing for these cores. Ops are those of the planned stage functions, `sharded` is the"
        " share of the FLOPs in ops",
        "that are split over devices, `gap` bounds how far the shardings are from the best ones for"
        " the shape. Each row is",
        "of the tree and cost model of its date.",
        "",
        "| program | ops | seconds | of CPU | load | RSS | meshes x microbatches | step"
        " | per device | sharded | gap | date |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["programs"]:
        head = (
            f"| {row['program']} | {row.get('ops', '-')} | {row['seconds']:.0f}"
            f" | {row['cpu_s']:.0f} | {row['load_average']:.0f} | {row['peak_gib']:.1f} GiB |"
        )
        if row["outcome"] != "planned":
            lines.append(f"{head} {row['outcome']} | | | | | {row['date']} |")
            continue
        meshes = list(dict.fromkeys(row["meshes"]))
        shape = f"{len(row['meshes'])} of {', '.join(meshes)}, {row['microbatches']}"
        lines.append(
            f"{head} {shape} | {1e3 * row['step_time_s']:.4g} ms | {row['device_gib']:.1f} GiB"
            f" | {row['sharded_flops']:.2%} | {row['gap']:.2%}"
            f" | {row['date']} |"
        )
    lines += ["", "What is replicated, and other notes:", ""]
    for row in report["programs"]:
        lines += [f"- {row['program']}: {note}" for note in row.get("notes", [])]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pattern", default="*.full.mlir*")
    parser.add_argument("--cluster", default="h100-64")
    parser.add_argument("--time-limit", type=float, help="of one planning, seconds")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one command")
    parser.add_argument("--gallery", action="store_true", help="keep the plans in docs/gallery")
    results = ROOT / "benchmarks" / "results" / "full_programs.json"
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "full_programs.md")
    options = parser.parse_args()
    limit = [] if options.time_limit is None else ["--time-limit", f"{options.time_limit:g}"]
    given = ["--cluster", options.cluster, *limit, "--no-cache"]
    machine = {"processor": platform.machine(), "cores": os.cpu_count()}
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(options.directory.glob(options.pattern)):
            file = Path(scratch) / path.name.removesuffix(".gz")
            data = path.read_bytes()
            file.write_bytes(gzip.decompress(data) if path.suffix == ".gz" else data)
            kept = file.with_suffix(".json")
            row = plan(file, given, options.timeout, kept)
            failed |= row["outcome"].startswith("FAILS")
            if options.gallery and not row["outcome"].startswith("FAILS"):
                came = kept if kept.exists() else row["outcome"].removeprefix("does not fit: ")
                _keep_in_gallery(kept.stem, options.cluster, given, came)
            print(json.dumps({k: v for k, v in row.items() if k != "notes"}), flush=True)
            rows = [each for each in _known(options.results) if each["program"] != row["program"]]
            rows = sorted([*rows, row], key=lambda each: each["program"])
            report = {"machine": machine, "cluster": options.cluster, "programs": rows}
            options.results.write_text(json.dumps(report, indent=1) + "\n")
            options.output.write_text(table(report))
    return int(failed)


def _keep_in_gallery(name: str, cluster: str, given: list[str], came: Path | str) -> None:
    if (tools := str(ROOT / "tools")) not in sys.path:
        sys.path.insert(0, tools)
    import write_gallery

    write_gallery.note({name: write_gallery.keep(name, cluster, given, came)})


def _known(results: Path) -> list[Result]:
    rows: list[Result] = json.loads(results.read_text())["programs"] if results.exists() else []
    return rows


if __name__ == "__main__":
    sys.exit(main())
