"""`shardc plan`: from a StableHLO file and a cluster to a plan; no devices are needed."""

from typing import Any

import click
from click.core import ParameterSource

from shardc import compiler
from shardc.api.planning.find import find_beside, plan_as_given
from shardc.api.planning.ranking import rank_plans
from shardc.api.request import given_plan
from shardc.cli import SIGNALS
from shardc.cli.output import format_option, print_json
from shardc.cli.plan_json import plan_summary
from shardc.cli.plan_options import ask_as_flagged, from_flags, plan_options
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.importer.from_file import import_file
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.notes import Note, NoteCode
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.sharding_conflicts import asked_prices
from shardc.report.compare import comparison, comparison_json, ranking_json, ranking_table
from shardc.report.counterfactuals import explained_choices
from shardc.report.reading import read_plan
from shardc.report.summary import explain, printed
from shardc.report.words import in_words

WIDE = 150  # columns of the ranking


@click.command()
@click.argument("file", required=False)
@click.option("--cluster", help="A built-in cluster by name, or a JSON file.")
@plan_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan here.")
@click.option("--prices", is_flag=True, help="Show what each requested sharding costs.")
@click.option(
    "--explain",
    "pattern",
    metavar="PATTERN",
    help="Explain the shardings of the matching arguments and ops.",
)
@click.option(
    "--stages-spec",
    "spec_files",
    type=click.Path(),
    multiple=True,
    help="Plan the pipeline in this JSON file; with --top, rank it with the search's.",
)
@click.option("--top", type=click.IntRange(1), help="Rank this many pipelines.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(),
    metavar="PLAN PLAN",
    help="Explain which of two plan files is faster.",
)
@click.option("--usual", is_flag=True, help="Also plan and rank what people write by hand.")
@click.option("--no-cache", is_flag=True, help="Plan again, even if a cached plan exists.")
@format_option
def command(
    file: str | None,
    cluster: str | None,
    output: str | None,
    prices: bool,
    pattern: str | None,
    spec_files: tuple[str, ...],
    top: int | None,
    compare: tuple[str, str] | None,
    usual: bool,
    no_cache: bool,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan FILE (StableHLO text or bytecode; - reads standard input) for a cluster.

    Ctrl-C ends the search and returns the best plan found so far.
    """
    if compare is not None:
        _check_alone()
        _compare(compare, output_format)
        return
    if file is None or cluster is None:
        raise click.UsageError("give FILE and --cluster, or --compare with two plan files")
    options = from_flags(flags)
    machine = Cluster.load(cluster)
    specs = _specs(spec_files, options, flags["sharding"], prices, top)
    imported = import_file(file)
    ask_as_flagged(imported, options, flags)
    compiler.prepare(imported.module)
    ranked = None
    if top is not None:
        plan, ranked = rank_plans(imported.module, machine, options, top, specs, SIGNALS)
        if usual:
            plan = find_beside(imported.module, plan, machine, options, signals=SIGNALS)
    else:
        spec = specs[0] if specs else None
        plan = plan_as_given(
            imported.module,
            machine,
            options,
            spec,
            beside=usual,
            use_cache=not no_cache,
            signals=SIGNALS,
        )
    if output is not None:
        plan.save(output)
    costs = asked_prices(imported.module, plan, machine, options) if prices else {}
    reasons = ""
    if pattern is not None:
        reasons = explained_choices(imported.module, plan, machine, pattern)
    if output_format == "json":
        more: dict[str, Any] = {"sharding_prices_s": costs} if prices else {}
        if ranked is not None and top is not None:
            more |= ranking_json(ranked, top)
        if pattern is not None:
            more["explained"] = reasons.splitlines()
        print_json({**plan_summary(plan, options), **more})
        return
    click.echo(in_words(read_plan(plan)) + explain(plan), nl=False)
    if ranked is not None and top is not None:
        click.echo(printed([ranking_table(ranked, top)], width=WIDE), nl=False)
        if not ranked.all_priced:
            click.echo(f"note: {Note(NoteCode.NOT_ALL_PRICED)}")
    click.echo(reasons, nl=False)
    for name, price_s in costs.items():
        click.echo(f"requested by {name}: costs {price_s:.3g} s per step")


def _specs(
    files: tuple[str, ...],
    options: PlanOptions,
    shardings: tuple[str, ...],
    prices: bool,
    top: int | None,
) -> list[StagesSpec]:
    """The hand-written plans; InputError (SHARDC-183) if options contradict them."""
    if files and prices:
        raise InputError(
            "both --prices and --stages-spec are given",
            help="plan the spec once with and once without a pattern",
            code="SHARDC-183",
        )
    if len(files) > 1 and top is None:
        raise InputError(
            f"--stages-spec is given {len(files)} times",
            help=f"give --top {len(files)} to rank them",
            code="SHARDC-183",
        )
    specs = [StagesSpec.load(each) for each in files]
    if top is None:
        for spec in specs:
            given_plan(spec, options, shardings)
    return specs


def _check_alone() -> None:
    """A usage error if anything but --format is given beside --compare."""
    context = click.get_current_context()
    for each in context.command.params:
        given = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if given and each.name not in ("compare", "output_format"):
            hint = each.get_error_hint(context)
            raise click.UsageError(f"--compare takes two plan files and --format, not {hint}")


def _compare(files: tuple[str, str], output_format: str) -> None:
    one, other = (Plan.load(path).judged(path) for path in files)
    if output_format == "json":
        print_json(comparison_json(one, other))
    else:
        for line in comparison(one, other):
            click.echo(line)
