"""`shardc what-if`: plans one program for many machines, in a table."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from shardc import compiler
from shardc.api.stages import plan_as_given
from shardc.cli import SIGNALS
from shardc.cli.export import program
from shardc.cli.output import format_option, print_json
from shardc.cli.plan_options import ask_as_flagged, from_flags, num_bytes, plan_options
from shardc.cluster import Cluster
from shardc.errors import InfeasibleError, InputError, writing
from shardc.files import write_whole
from shardc.importer.program import Imported
from shardc.options import PlanOptions
from shardc.plan.account import ArgumentKind
from shardc.plan.decisions import Plan
from shardc.report.summary import seconds, size

COLUMNS = (
    "cluster",
    "devices",
    "memory_bytes",
    "batch",
    "fits",
    "step_s",
    "tokens_per_s",
    "peak_bytes",
    "device_s",
    "parallelism",
)
Row = dict[str, Any]


@click.command(name="what-if")
@click.argument("file", metavar="FILE|MODULE:FUNCTION")
@click.argument("arguments", required=False)
@click.option(
    "--clusters",
    "--cluster",
    "clusters",
    required=True,
    help="Names or files, such as a100-8,h100-8.",
)
@click.option("--devices", help="Devices of each cluster, such as 8,16,64; by default all.")
@click.option("--memory-limits", help="Per device, such as 40GiB,80GiB; default: the cluster's.")
@click.option("--batches", help="Sizes, such as 32,64: ARGUMENTS is then a function of the size.")
@click.option("--donate", default="", help="For a function: donated arguments, such as 0,1.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False), help="Write the table here.")
@plan_options
@format_option
def command(
    file: str,
    arguments: str | None,
    clusters: str,
    devices: str | None,
    memory_limits: str | None,
    batches: str | None,
    donate: str,
    csv_file: str | None,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan FILE, or a function called with ARGUMENTS, for machines that you need not have.

    One row per cluster, number of devices, memory limit and batch size: step time, tokens per
    second if the batch holds tokens, whether it fits, and device-seconds per step. The cheapest
    row is the one that fits with the fewest device-seconds per example.
    """
    options = from_flags(flags)
    sizes = _numbers("--batches", batches) or [None]
    if sizes != [None] and arguments is None:
        raise InputError("--batches needs a function", help="write train:step train:example")
    rows: list[Row] = []
    for size_of_batch in sizes:
        imported = program(file, arguments, donate, size_of_batch)
        ask_as_flagged(imported, options, flags)
        compiler.prepare(imported.module)
        for machine in _machines(clusters, devices, memory_limits):
            rows.append(_row(imported, machine, options, size_of_batch))
    cheapest = _cheapest(rows)
    if csv_file is not None:
        _write_csv(csv_file, rows)
    if output_format == "json":
        print_json({"rows": rows, "cheapest": cheapest})
        return
    Console(width=150).print(_table(rows, cheapest))


def _machines(clusters: str, devices: str | None, limits: str | None) -> Iterator[Cluster]:
    for name in clusters.split(","):
        whole = Cluster.load(name)
        for count in _numbers("--devices", devices) or [whole.num_devices]:
            machine = whole if count == whole.num_devices else whole.with_devices(count or 1)
            for limit in (limits or "").split(","):
                yield machine.with_memory(num_bytes(limit)) if limit else machine


def _numbers(option: str, text: str | None) -> list[int | None]:
    if text is None:
        return []
    try:
        found: list[int | None] = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} {text} is not a list of numbers", help="write 8,16") from error
    return found


def _row(imported: Imported, machine: Cluster, options: PlanOptions, batch: int | None) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    row |= {
        "cluster": machine.name,
        "devices": machine.num_devices,
        "memory_bytes": machine.device.memory_bytes,
        "batch": batch,
        "fits": False,
    }
    try:
        plan = plan_as_given(imported.module, machine, options, None, signals=SIGNALS)
    except InfeasibleError as error:
        return {**row, "parallelism": error.message}
    step_s = plan.predicted.step_time_s
    tokens = _tokens(plan)
    from shardc.report.reading import read_plan

    return {
        **row,
        "fits": True,
        "step_s": step_s,
        "tokens_per_s": tokens / step_s if tokens else None,
        "peak_bytes": plan.predicted.peak_bytes_per_device,
        "device_s": step_s * machine.num_devices,
        "parallelism": read_plan(plan).headline,
    }


def _tokens(plan: Plan) -> int:
    """Number of integers in the largest 2D input, a batch of sequences; 0 if there is none."""
    account = plan.account
    inputs = [
        each
        for each in (account.arguments if account else ())
        if each.kind is ArgumentKind.INPUTS and "int" in each.dtype and len(each.shape) == 2
    ]
    return max((each.shape[0] * each.shape[1] for each in inputs), default=0)


def _cheapest(rows: list[Row]) -> int | None:
    """The row with the fewest device-seconds per example; None if none fits."""
    fitting = [n for n, row in enumerate(rows) if row["fits"]]
    return min(fitting, key=lambda n: rows[n]["device_s"] / (rows[n]["batch"] or 1), default=None)


def _table(rows: list[Row], cheapest: int | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (
        "cluster",
        "devices",
        "memory",
        "batch",
        "step",
        "tokens/s",
        "peak",
        "what it does",
    ):
        table.add_column(name)
    for number, row in enumerate(rows):
        fits = row["fits"]
        table.add_row(
            row["cluster"],
            str(row["devices"]),
            size(row["memory_bytes"]),
            str(row["batch"] or ""),
            seconds(row["step_s"]) if fits else "does not fit",
            f"{row['tokens_per_s']:.3g}" if row["tokens_per_s"] else "",
            size(row["peak_bytes"]) if fits else "",
            f"{'cheapest: ' if number == cheapest else ''}{row['parallelism']}",
        )
    return table


def _write_csv(path: str, rows: list[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    with writing("the table", path):
        write_whole(path, text.getvalue().encode())
