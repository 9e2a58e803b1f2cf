"""`shardc report`: one HTML file about one plan, or two."""

from pathlib import Path

import click

from shardc.cli.output import format_option, print_json
from shardc.plan.decisions import Plan


@click.command()
@click.argument("plan_files", metavar="PLAN [PLAN]", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", default="report.html", show_default=True, type=click.Path())
@format_option
def command(plan_files: tuple[str, ...], output: str, output_format: str) -> None:
    """Write one self-contained HTML file about PLAN; for two plans, also their differences.

    It shows a description, timeline, memory, devices, communication, alternatives and the model.
    """
    from shardc.report.page.page import Report

    if len(plan_files) > 2:
        raise click.UsageError("give one plan, or two to compare")
    names = [Path(path).stem for path in plan_files]
    if len(set(names)) < len(names):
        names = list(plan_files)
    plans = [Plan.load(path) for path in plan_files]
    report = Report(tuple(zip(names, plans, strict=True)))
    report.save(output)
    if output_format == "json":
        print_json({"report": output, "num_bytes": len(report.html.encode())})
    else:
        click.echo(output)
