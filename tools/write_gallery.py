"""Plans programs in words and pictures: docs/gallery has a page for each, made of a kept plan.

python tools/write_gallery.py                          write the pages of the plans that are kept
python tools/write_gallery.py --check                  exit 1 if they are not what would be written
python tools/write_gallery.py --plan FILE ... [--cluster a100-8] [--time-limit S]
                                                       plan these StableHLO files and keep the plans
python tools/write_gallery.py --plan-all FOLDER        the same for all NAME.tiny.mlir.gz (cpu8) and
                                                       NAME.full.mlir.gz (h100-64) of a folder
python tools/write_gallery.py --pictures [NAME ...]    draw the pictures; takes a browser
python tools/write_gallery.py --reports DIR            write the HTML report of each plan
python tools/write_gallery.py --stale                  list plans of another cost model than today's

A plan file is enough to explain a plan, so pages need neither the programs nor their packages. With
each plan the day, the commit and a digest of the cost model are kept, and for a program that does
not fit, the reason.
"""

import argparse
import datetime
import gzip
import hashlib
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shardc.cluster import Cluster
from shardc.plan.decisions import Plan
from shardc.report.reading import read_plan
from shardc.report.summary import explain, seconds
from shardc.report.words import in_words

if TYPE_CHECKING:
    from shardc.report.page.figures import Chart

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
PLANS, PICTURES = GALLERY / "plans", GALLERY / "pictures"
MADE = PLANS / "made.json"
ENDING = ".json.gz"
CLUSTERS = {"tiny": "cpu8", "full": "h100-64"}  # by size of a program
NO_PLAN = 3  # exit code
MOST_DRAWN = 500  # actions of a timeline
WIDTH = 760  # pixels of a picture
VIEW = '<meta name="viewport" content="width=device-width, initial-scale=1">'


class Made(msgspec.Struct, frozen=True):
    """How a plan was made.

    Attributes:
        commit: of this repository, as `git describe` names it.
        cost_model: digest of the code that prices and of the cluster; "" if it is not known.
        options: of `shardc plan`.
        refusal: why there is no plan; "" if there is one.
    """

    date: str
    commit: str
    cost_model: str
    options: str
    refusal: str = ""


def plan_and_keep(path: Path, name: str, cluster: str, time_limit_s: float | None) -> Made:
    """Plans one program by `shardc plan`, in a process of its own, and keeps the plan."""
    limit = [] if time_limit_s is None else ["--time-limit", f"{time_limit_s:g}"]
    given = ["--cluster", cluster, *limit, "--no-cache"]
    command = "from shardc.cli import command_line; command_line()"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        ran = subprocess.run(
            [sys.executable, "-c", command, "plan", str(path), *given, "-o", str(file)],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ran.returncode not in (0, NO_PLAN):
            raise SystemExit(f"{path}: {ran.stderr}")
        return keep(name, cluster, given, file if ran.returncode == 0 else ran.stderr)


def keep(name: str, cluster: str, given: list[str], came: Path | str) -> Made:
    """Keeps what came of planning: a plan file, or what was printed where nothing fits."""
    plan = PLANS / f"{name}{ENDING}"
    refusal = ""
    if isinstance(came, Path):
        PLANS.mkdir(parents=True, exist_ok=True)
        plan.write_bytes(gzip.compress(came.read_bytes(), mtime=0))
    else:
        plan.unlink(missing_ok=True)
        refusal = next((line for line in came.splitlines() if line.startswith("error[")), "")
    return Made(
        date=datetime.date.today().isoformat(),
        commit=_git("describe", "--always", "--dirty"),
        cost_model=cost_model(Cluster.load(cluster)),
        options=" ".join(given),
        refusal=refusal,
    )


def cost_model(cluster: Cluster) -> str:
    """A digest of all that predicted times and bytes of links depend on."""
    digest = hashlib.sha256(msgspec.json.encode(cluster))
    for path in sorted((ROOT / "shardc" / "cost").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _git(*given: str) -> str:
    ran = subprocess.run(["git", "-C", str(ROOT), *given], capture_output=True, text=True)
    return ran.stdout.strip()


def all_made() -> dict[str, Made]:
    return msgspec.json.decode(MADE.read_bytes(), type=dict[str, Made]) if MADE.exists() else {}


def note(found: dict[str, Made]) -> None:
    """Adds to what is known of how plans were made."""
    known = dict(sorted({**all_made(), **found}.items()))
    MADE.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")


def kept() -> dict[str, Plan]:
    """The plans of the gallery by name."""
    return {
        path.name.removesuffix(ENDING): msgspec.json.decode(
            gzip.decompress(path.read_bytes()), type=Plan
        )
        for path in sorted(PLANS.glob(f"*{ENDING}"))
    }


def programs(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """File, name and cluster of each program of a folder: `x` of its tiny form, `x.full`."""
    for path in sorted(folder.iterdir()):
        found = re.fullmatch(r"(.+)\.(tiny|full)\.mlir(\.gz)?", path.name)
        if found is not None:
            name = found[1] if found[2] == "tiny" else f"{found[1]}.full"
            yield path, name, CLUSTERS[found[2]]


def page(name: str, plan: Plan, made: Made) -> str:
    """What a plan does, in words, as a table and in pictures."""
    assert plan.cluster is not None
    words = in_words(read_plan(plan)) + explain(plan)
    text = "\n".join(line.rstrip() for line in words.splitlines())
    pictures = "".join(
        f"![{title}](pictures/{path.name})\n\n"
        for title, path in pictures_of(name)
        if path.exists()
    )
    return (
        f"# {name}\n\nPlanned for `{plan.cluster.name}`, {plan.cluster.num_devices} devices, on"
        f" {made.date} by `shardc plan {made.options}` at commit {made.commit}"
        f"{made.cost_model and f' (cost model {made.cost_model})'}.\n\n{pictures}"
        "What `shardc explain` says of the plan:\n\n"
        f"```text\n{text}\n```\n"
    )


def pictures_of(name: str) -> list[tuple[str, Path]]:
    """Titles and files of the pictures of a plan."""
    return [
        ("Timeline of a step", PICTURES / f"{name}.timeline.svg"),
        ("Alive at the peak, on one device", PICTURES / f"{name}.memory.svg"),
    ]


def index(plans: dict[str, Plan], made: dict[str, Made]) -> str:
    lines = [
        "# Gallery\n",
        "Training and inference steps of public packages, at small sizes and, where the name ends",
        "in `.full`, as published, as `tools/write_gallery.py` planned them on the given day;",
        "[reading a plan](../reports.md) has the words.",
        "Files of other packages have no names for their arguments; `shardc export` writes them.",
        "On the site that `make site` builds, each page has a link to the HTML report.\n",
        "| program | cluster | what the axes of the mesh do | predicted step | planned |",
        "|---|---|---|---|---|",
    ]
    for name, how in made.items():
        if how.refusal:
            cluster = how.options.split()[1]
            lines.append(f"| {name} | {cluster} | {how.refusal} | - | {how.date} |")
            continue
        plan = plans[name]
        assert plan.cluster is not None
        step = seconds(plan.predicted.step_time_s)
        lines.append(
            f"| [{name}]({name}.md) | {plan.cluster.name} | {read_plan(plan).headline} | {step} |"
            f" {how.date} |"
        )
    lines += ["", "```{toctree}", ":hidden:", ":glob:", "", "*", "```"]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    plans, made = kept(), all_made()
    found = {GALLERY / f"{name}.md": page(name, plan, made[name]) for name, plan in plans.items()}
    return {**found, GALLERY / "index.md": index(plans, made)}


def draw(names: list[str]) -> None:
    """Draws the pictures of plans: the report's charts, as SVG, by a headless browser."""
    sys.path.insert(0, str(ROOT))
    from tests.py.report import browser

    found = browser.find()
    if found is None:
        raise SystemExit(f"no browser: none of {', '.join(browser.BROWSERS)}")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser.page(found, Path(folder)) as tab:
        for name, plan in kept().items():
            if names and name not in names:
                continue
            for chart, (_, path) in zip(charts_of(plan), pictures_of(name), strict=True):
                if chart is None:
                    path.unlink(missing_ok=True)
                    continue
                file = Path(folder) / "page.html"
                file.write_text(drawing(chart))
                tab.open(file, WIDTH, 600)
                svg = tab.evaluate(
                    "Bokeh.index.roots.find((each) => each.frame).export('svg').ctx"
                    ".get_serialized_svg(true)"
                )
                path.write_text(tidy(svg) + "\n")


def charts_of(plan: Plan) -> "list[Chart | None]":
    """The pictures of a plan. A long timeline is shown up to its first actions."""
    from shardc.report.page import charts

    account, reading = plan.account, read_plan(plan)
    at_peak = charts.at_peak(reading.stages, reading.num_own_stages)
    if account is None or len(account.timeline) <= 1:
        return [None, at_peak]
    actions = sorted(account.timeline, key=lambda each: each.start_s)
    whole_s = max(each.end_s for each in actions)
    shown = actions[:MOST_DRAWN]
    timeline = charts.timeline(msgspec.structs.replace(account, timeline=tuple(shown)))
    if len(shown) < len(actions):
        end_s = max(each.end_s for each in shown)
        timeline.plot.title.text = f"the first {seconds(end_s)} of {seconds(whole_s)}"
    return [timeline, at_peak]


def drawing(chart: "Chart") -> str:
    """A page with one chart, whose legend is part of it."""
    from bokeh.embed import components
    from bokeh.resources import Resources

    from shardc.report.page.figures import INK

    plot = chart.plot
    plot.output_backend = "svg"
    plot.toolbar_location = None
    plot.title.text = ": ".join(filter(None, [chart.title, plot.title.text]))
    plot.title.text_color = INK
    for color, words in chart.legend:
        nowhere = [math.nan]
        plot.scatter(nowhere, nowhere, color=color, legend_label=words, marker="square", size=10)
    if chart.legend:
        plot.legend.label_text_color = INK
        plot.legend.background_fill_alpha = 0
        plot.legend.border_line_color = None
        plot.legend.ncols = min(len(chart.legend), 4)
        plot.legend.margin = plot.legend.padding = 0
        plot.add_layout(plot.legend[0], "below")
    script, div = components(plot)
    resources = Resources(mode="inline", components=["bokeh"]).render_js()
    return f"<!doctype html><html><head>{VIEW}{resources}</head><body>{div}{script}</body></html>"


def tidy(svg: str) -> str:
    """With names in the order of their use: the same chart is the same file."""
    names = dict.fromkeys(re.findall(r'id="([^"]+)"', svg))
    for number, name in enumerate(names):
        svg = svg.replace(f'id="{name}"', f'id="c{number}"').replace(f"#{name})", f"#c{number})")
    return svg


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plan", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--plan-all", type=Path, metavar="FOLDER")
    parser.add_argument("--cluster", default="a100-8", help="Of --plan.")
    parser.add_argument("--time-limit", type=float, help="Of one planning, seconds.")
    parser.add_argument("--pictures", nargs="*", metavar="NAME")
    parser.add_argument("--reports", type=Path, metavar="DIR")
    parser.add_argument("--stale", action="store_true")
    asked = parser.parse_args()
    todo = [(path, path.name.partition(".mlir")[0], asked.cluster) for path in asked.plan]
    for path, name, cluster in [*todo, *(programs(asked.plan_all) if asked.plan_all else ())]:
        note({name: plan_and_keep(path, name, cluster, asked.time_limit)})
        print(name, all_made()[name].refusal or "planned", flush=True)
    if asked.pictures is not None:
        draw(asked.pictures)
    if asked.stale:
        for name, plan in kept().items():
            assert plan.cluster is not None
            now = Cluster.load(all_made()[name].options.split()[1])
            if all_made()[name].cost_model != cost_model(now):
                print(name)
        return 0
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
