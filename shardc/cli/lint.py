"""`shardc lint`: avoidable costs of a program on a cluster."""

from typing import Any

import click
import msgspec

from shardc import compiler
from shardc.api.planning.find import plan_as_given
from shardc.api.request import check_plan_is_for, given_plan
from shardc.cli import SIGNALS
from shardc.cli.export import program
from shardc.cli.output import format_option, print_json
from shardc.cli.plan_options import ask_as_flagged, from_flags, plan_options
from shardc.cluster import Cluster
from shardc.report.findings.lint import lint
from shardc.report.summary import seconds

FOUND = 1


@click.command(name="lint")
@click.argument("file", metavar="FILE|MODULE:FUNCTION")
@click.argument("arguments", required=False)
@click.option("--cluster", required=True, help="A built-in cluster by name, or a JSON file.")
@click.option("--plan", "plan_file", type=click.Path(), help="Use this plan, made for FILE.")
@click.option("--donate", default="", help="For a function: donated arguments, such as 0,1.")
@plan_options
@click.option("--strict", is_flag=True, help="Exit 1 if anything is found.")
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    file: str,
    arguments: str | None,
    cluster: str,
    plan_file: str | None,
    donate: str,
    strict: bool,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan FILE, or a function called with ARGUMENTS (train:step train:example), and list its
    avoidable costs, each with its price per step and on one device ("not priced": that would need
    another plan).

    Finds large replicated values, idle axes, an unsharded optimizer, an undetected batch, dims that
    just fail to divide, collectives in loops, and upcasts before collectives.
    """
    options = from_flags(flags)
    machine = Cluster.load(cluster)
    imported = program(file, arguments, donate)
    given = given_plan(plan_file, options)
    ask_as_flagged(imported, options, flags, given)
    compiler.prepare(imported.module)
    plan = plan_as_given(imported.module, machine, options, given, signals=SIGNALS)
    check_plan_is_for(plan, len(imported.arguments))
    found = lint(imported.module, plan)
    if output_format == "json":
        print_json({"findings": msgspec.to_builtins(found), "step_s": plan.predicted.step_time_s})
    else:
        for each in found:
            click.echo(each)
        click.echo(f"{len(found)} found; a step takes {seconds(plan.predicted.step_time_s)}")
    if strict and found:
        context.exit(FOUND)
