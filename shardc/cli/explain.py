"""`shardc explain`: describes a plan file in words."""

from typing import Any

import click
import msgspec

from shardc.cli.output import format_option, print_json
from shardc.errors import InputError
from shardc.plan.decisions import Plan
from shardc.report.reading import read_plan
from shardc.report.summary import explain
from shardc.report.words import about, in_words


@click.command()
@click.argument("plan_file", metavar="PLAN", type=click.Path())
@click.argument("pattern", required=False)
@click.option("--program", help="The StableHLO file: shows what other shardings would cost.")
@click.option("--sources", is_flag=True, help="Show where the numbers come from.")
@format_option
def command(
    plan_file: str, pattern: str | None, program: str | None, sources: bool, output_format: str
) -> None:
    """Describe PLAN in words; with PATTERN, how the matching values are sharded.

    PATTERN matches an argument's name (params.*.kernel) or a part of the model (blocks.3.*); with
    --program also an op (dot_general) or a source position (train.py:41).
    """
    plan = Plan.load(plan_file)
    if pattern is not None:
        lines = _explained(plan, pattern, program)
        if output_format == "json":
            print_json({"pattern": pattern, "explained": lines})
        else:
            click.echo("\n".join(lines))
        return
    reading = read_plan(plan)
    if output_format == "json":
        data: dict[str, Any] = msgspec.to_builtins(reading)
        print_json(data)
        return
    click.echo(in_words(reading), nl=False)
    click.echo(explain(plan), nl=False)
    if sources:
        for name, words in reading.sources.items():
            click.echo(f"{name}: {words}")


def _explained(plan: Plan, pattern: str, program: str | None) -> list[str]:
    if program is None:
        lines = about(plan, pattern)
    else:
        from shardc import compiler
        from shardc.api.request import check_plan_is_for
        from shardc.cluster import Cluster
        from shardc.importer.from_file import import_file
        from shardc.importer.requested_shardings import constrain_as_planned
        from shardc.report.counterfactuals import explained_choices

        imported = import_file(program)
        check_plan_is_for(plan, len(imported.arguments))
        constrain_as_planned(imported, plan)
        compiler.prepare(imported.module)
        cluster = plan.cluster or Cluster.load("cpu8")
        lines = explained_choices(imported.module, plan, cluster, pattern).splitlines()
    if not lines:
        raise InputError(
            f"'{pattern}' matches no argument and no part of the model in the plan",
            help="name an argument (params.*.kernel), or add --program to match ops",
        )
    return lines
