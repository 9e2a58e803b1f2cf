"""Plans programs in words: docs/gallery has a page for each, made of a plan that is kept there.

python tools/write_gallery.py                          write the pages of the plans that are kept
python tools/write_gallery.py --check                  exit 1 if they are not what would be written
python tools/write_gallery.py --plan FILE ... [--cluster a100-8] [--time-limit 60]
                                                       plan these StableHLO files and keep the plans
python tools/write_gallery.py --reports DIR            write the HTML report of each plan

A plan file is enough to explain a plan, so pages need neither the programs nor their packages.
"""

import argparse
import gzip
import io
import sys
import tempfile
from pathlib import Path

import msgspec

from shardc.cli import main as shardc
from shardc.plan.decisions import Plan
from shardc.report.reading import read_plan
from shardc.report.summary import explain
from shardc.report.words import in_words

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
PLANS = GALLERY / "plans"
ENDING = ".json.gz"


def keep(path: Path, cluster: str, time_limit_s: float) -> None:
    """Plans one program as `shardc plan` does and keeps the plan by the program's name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        given = ["plan", path, "--cluster", cluster, "--time-limit", time_limit_s, "--no-cache"]
        shardc.main([str(each) for each in (*given, "-o", file)], standalone_mode=False)
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream:
            stream.write(file.read_bytes())
    name = path.name.removesuffix(".gz").removesuffix(".mlir").removesuffix(".tiny")
    PLANS.mkdir(parents=True, exist_ok=True)
    (PLANS / f"{name}{ENDING}").write_bytes(packed.getvalue())


def kept() -> dict[str, Plan]:
    """The plans of the gallery by name."""
    return {
        path.name.removesuffix(ENDING): msgspec.json.decode(
            gzip.decompress(path.read_bytes()), type=Plan
        )
        for path in sorted(PLANS.glob(f"*{ENDING}"))
    }


def page(name: str, plan: Plan) -> str:
    """What a plan does, in words and as a table."""
    assert plan.cluster is not None
    words = in_words(read_plan(plan)) + explain(plan)
    text = "\n".join(line.rstrip() for line in words.splitlines())
    return (
        f"# {name}\n\nPlanned for `{plan.cluster.name}`, {plan.cluster.num_devices} devices. What"
        f" `shardc explain` says of the plan:\n\n```text\n{text}\n```\n"
    )


def index(plans: dict[str, Plan]) -> str:
    lines = [
        "# Gallery\n",
        "Training and inference steps of public packages, at small sizes and, where the name ends",
        "in `.full`, as published, as `tools/write_gallery.py` planned them;",
        "[reading a plan](../reports.md) has the words.",
        "Files of other packages have no names for their arguments; `shardc export` writes them.",
        "`make site` puts the HTML report of each beside them, in `gallery/reports`.\n",
        "| program | cluster | what the axes of the mesh do | predicted step |",
        "|---|---|---|---|",
    ]
    for name, plan in plans.items():
        assert plan.cluster is not None
        reading = read_plan(plan)
        step = explain(plan).partition("predicted: ")[2].partition(" per step")[0]
        lines.append(f"| [{name}]({name}.md) | {plan.cluster.name} | {reading.headline} | {step} |")
    lines += ["", "```{toctree}", ":hidden:", ":glob:", "", "*", "```"]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    plans = kept()
    found = {GALLERY / f"{name}.md": page(name, plan) for name, plan in plans.items()}
    return {**found, GALLERY / "index.md": index(plans)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plan", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--cluster", default="a100-8")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--reports", type=Path, metavar="DIR")
    asked = parser.parse_args()
    for path in asked.plan:
        keep(path, asked.cluster, asked.time_limit)
    if asked.reports is not None:
        from shardc.report.page.page import Report

        asked.reports.mkdir(parents=True, exist_ok=True)
        for name, plan in kept().items():
            Report(((name, plan),)).save(asked.reports / f"{name}.html")
        return 0
    stale = False
    for path, text in pages().items():
        if asked.check:
            stale |= not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
