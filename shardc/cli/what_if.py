"""`shardc what-if`: plans one program for many machines, in a table."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from shardc import compiler
from shardc.api.planning.find import plan_as_given
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
from shardc.plan.notes import size
from shardc.report.page.cases import Case, cheapest
from shardc.report.summary import seconds

HOUR_S = 3600.0


@click.command(name="what-if")
@click.argument("file", metavar="FILE|MODULE:FUNCTION")
@click.argument("arguments", required=False)
@click.option(
    "--clusters",
    "--cluster",
    "clusters",
    required=True,
    multiple=True,
    help="Names or files, such as a100-8,h100-8; may be repeated.",
)
@click.option("--devices", help="Devices of each cluster, such as 8,16,64; by default all.")
@click.option("--memory-limits", help="Per device, such as 40GiB,80GiB; default: the cluster's.")
@click.option("--batches", help="Sizes, such as 32,64: ARGUMENTS is then a function of the size.")
@click.option("--donate", default="", help="For a function: donated arguments, such as 0,1.")
@click.option(
    "--prices", help="Of a device-hour by cluster, such as a100-8=1.5,h100-8=3, in any currency."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write an HTML page here.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False), help="Write the table here.")
@plan_options
@format_option
def command(
    file: str,
    arguments: str | None,
    clusters: tuple[str, ...],
    devices: str | None,
    memory_limits: str | None,
    batches: str | None,
    donate: str,
    prices: str | None,
    output: str | None,
    csv_file: str | None,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan FILE, or a function called with ARGUMENTS, for machines that you need not have.

    One row per cluster, number of devices, memory limit and batch size: step time, that of the next
    best pipeline that was planned, tokens per second if the batch holds tokens, whether it fits,
    and device-seconds per step (in JSON also all pipelines that were considered). With prices the
    cheapest row is the one that costs least per example; without, there is one for each kind of
    device: the one with the fewest device-seconds per example.
    """
    names = ",".join(clusters)
    per_hour = _prices(prices, names)
    options = from_flags(flags)
    sizes = _numbers("--batches", batches) or [None]
    if sizes != [None] and arguments is None:
        raise InputError("--batches needs a function", help="write train:step train:example")
    cases: list[Case] = []
    for size_of_batch in sizes:
        imported = program(file, arguments, donate, size_of_batch)
        ask_as_flagged(imported, options, flags)
        compiler.prepare(imported.module)
        for name, machine in _machines(names, devices, memory_limits):
            cases.append(_case(imported, machine, options, size_of_batch, per_hour.get(name)))
    if csv_file is not None:
        _write_csv(csv_file, cases)
    if output is not None:
        from shardc.report.page.html import save
        from shardc.report.page.what_if import WhatIf

        save(output, WhatIf(file, tuple(cases)).html)
    if output_format == "json":
        print_json({"rows": msgspec.to_builtins(cases), "cheapest": cheapest(cases)})
        return
    Console(width=150).print(_table(cases))


def _machines(
    clusters: str, devices: str | None, limits: str | None
) -> Iterator[tuple[str, Cluster]]:
    """Each machine, and the name of its cluster on the command line."""
    for name in clusters.split(","):
        whole = Cluster.load(name)
        for count in _numbers("--devices", devices) or [whole.num_devices]:
            machine = whole if count == whole.num_devices else whole.with_devices(count or 1)
            for limit in (limits or "").split(","):
                yield name, machine.with_memory(num_bytes(limit)) if limit else machine


def _numbers(option: str, text: str | None) -> list[int | None]:
    if text is None:
        return []
    try:
        found: list[int | None] = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} {text} is not a list of numbers", help="write 8,16") from error
    if any(each is not None and each < 1 for each in found):
        raise InputError(f"{option} {text} has numbers below 1", help="write 8,16")
    return found


def _prices(text: str | None, clusters: str) -> dict[str, float]:
    """`a100-8=1.5,h100-8=3` by cluster; each cluster has one, or none has."""
    if text is None:
        return {}
    names = clusters.split(",")
    try:
        found = {name: float(price) for name, price in (p.rsplit("=", 1) for p in text.split(","))}
    except ValueError as error:
        raise InputError(
            f"--prices {text} is not a list of prices", help=f"write {names[0]}=1.5"
        ) from error
    if found.keys() != set(names) or not all(0 < price < math.inf for price in found.values()):
        raise InputError(
            f"--prices {text} does not give a positive price to each of {clusters}",
            help="give the price of a device-hour of each cluster, by the names in --clusters",
        )
    return found


def _case(
    imported: Imported,
    machine: Cluster,
    options: PlanOptions,
    batch: int | None,
    per_hour: float | None,
) -> Case:
    case = Case(
        cluster=machine.name,
        device=machine.device.name,
        devices=machine.num_devices,
        memory_bytes=machine.device.memory_bytes,
        batch=batch,
        fits=False,
        parallelism="",
    )
    try:
        plan = plan_as_given(imported.module, machine, options, None, signals=SIGNALS)
    except InfeasibleError as error:
        return msgspec.structs.replace(case, parallelism=error.message)
    from shardc.report.reading import read_plan

    reading, step_s = read_plan(plan), plan.predicted.step_time_s
    tokens = _tokens(plan)
    device_s = step_s * machine.num_devices
    return msgspec.structs.replace(
        case,
        fits=True,
        parallelism=reading.headline,
        judged=reading.judged,
        step_s=step_s,
        tokens_per_s=tokens / step_s if tokens else None,
        peak_bytes=plan.predicted.peak_bytes_per_device,
        device_s=device_s,
        price=None if per_hour is None else device_s * per_hour / HOUR_S,
    )


def _tokens(plan: Plan) -> int:
    """Number of integers in the largest 2D input, a batch of sequences; 0 if there is none."""
    account = plan.account
    inputs = [
        each
        for each in (account.arguments if account else ())
        if each.kind is ArgumentKind.INPUTS and "int" in each.dtype and len(each.shape) == 2
    ]
    return max((each.shape[0] * each.shape[1] for each in inputs), default=0)


def _table(cases: Sequence[Case]) -> Table:
    best = cheapest(cases)
    priced = any(case.price is not None for case in cases)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = ("cluster", "devices", "memory", "batch", "step", "next best", "tokens/s", "peak")
    for name in columns:
        table.add_column(name)
    if priced:
        table.add_column("price of a step")
    table.add_column("what it does")
    for number, case in enumerate(cases):
        cells = [
            case.cluster,
            str(case.devices),
            size(case.memory_bytes),
            str(case.batch or ""),
            "does not fit" if case.step_s is None else seconds(case.step_s),
            "" if case.next_best is None else seconds(case.next_best.step_time_s),
            f"{case.tokens_per_s:.3g}" if case.tokens_per_s else "",
            "" if case.peak_bytes is None else size(case.peak_bytes),
        ]
        if priced:
            cells.append("" if case.price is None else f"{case.price:.3g}")
        table.add_row(*cells, f"{'cheapest: ' if number in best else ''}{case.parallelism}")
    return table


def _write_csv(path: str, cases: Sequence[Case]) -> None:
    text = io.StringIO(newline="")
    columns = [name for name in Case.__struct_fields__ if name != "judged"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(msgspec.to_builtins(case) for case in cases)
    with writing("the table", path):
        write_whole(path, text.getvalue().encode())
