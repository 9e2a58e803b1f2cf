"""`shardc plan`: from a StableHLO file and a cluster to a plan; no devices are needed."""

from typing import Any

import click

from shardc import compiler
from shardc.api.stages import find_plan
from shardc.cli import SIGNALS
from shardc.cli.output import format_option, print_json, save_plan
from shardc.cli.plan_options import argument_shardings, from_flags, mesh_axes, plan_options
from shardc.cli.summary import check_batch_args, plan_summary
from shardc.cluster import Cluster
from shardc.importer.from_file import import_file
from shardc.importer.user_shardings import ask_by_patterns
from shardc.planner.user_shardings import asked_prices
from shardc.report.counterfactuals import explained_choices
from shardc.report.summary import explain


@click.command()
@click.argument("file")
@click.option("--cluster", required=True, help="A built-in cluster by name, or a JSON file.")
@plan_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan here.")
@click.option("--prices", is_flag=True, help="Say what each sharding costs that is asked for.")
@click.option(
    "--explain",
    "pattern",
    metavar="PATTERN",
    help="Say why the arguments and ops that it fits are sharded as they are.",
)
@click.option("--no-cache", is_flag=True, help="Plan anew, whatever was planned before.")
@format_option
def command(
    file: str,
    cluster: str,
    output: str | None,
    prices: bool,
    pattern: str | None,
    no_cache: bool,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan FILE (StableHLO text or bytecode; - reads standard input) for a cluster.

    Ctrl-C ends the search and gives the best plan found until then.
    """
    options = from_flags(flags)
    machine = Cluster.load(cluster)
    imported = import_file(file)
    check_batch_args(options.batch_args, imported)
    shardings = argument_shardings(flags["sharding"])
    ask_by_patterns(imported, shardings, mesh_axes(flags["mesh"]))
    compiler.prepare(imported.module)
    plan = find_plan(imported.module, machine, options, use_cache=not no_cache, signals=SIGNALS)
    if output is not None:
        save_plan(plan, output)
    costs = asked_prices(imported.module, plan, machine, options) if prices else {}
    reasons = ""
    if pattern is not None:
        reasons = explained_choices(imported.module, plan, machine, pattern)
    if output_format == "json":
        more: dict[str, Any] = {"sharding_prices_s": costs} if prices else {}
        if pattern is not None:
            more["explained"] = reasons.splitlines()
        print_json({**plan_summary(plan, options), **more})
        return
    click.echo(explain(plan), nl=False)
    click.echo(reasons, nl=False)
    for name, price_s in costs.items():
        click.echo(f"asked for by {name}: costs {price_s:.3g} s per step")
