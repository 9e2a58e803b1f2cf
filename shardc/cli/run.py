"""`shardc run`: runs a StableHLO file on this machine, and checks it against one device."""

import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import jax

from shardc import compiler
from shardc.analysis.program.index_ranges import index_limits, rooted_arguments
from shardc.api.planning.find import plan_as_given
from shardc.api.request import check_plan_fits, given_file
from shardc.api.telling.warned import warn_of_held_updates
from shardc.check import verify
from shardc.check.inputs import Array, load_inputs, seeded_inputs
from shardc.cli import SIGNALS
from shardc.cli.output import format_option, print_json
from shardc.cli.plan_json import requested
from shardc.cli.plan_options import ask_as_flagged, from_flags, plan_options
from shardc.cli.run_devices import machine_here, platform_option
from shardc.importer.from_file import import_file
from shardc.importer.program import Imported
from shardc.ir.copy import copy_module
from shardc.ir.walk import main_function
from shardc.plan.executable import Executable
from shardc.report.summary import explain
from shardc.report.trace import measured, predicted, save
from shardc.runtime.tape.profiled import as_they_run

if TYPE_CHECKING:
    from shardc.ir.context import Module

CHECK_FAILED = 1


@click.command()
@click.argument("file")
@click.option("--devices", type=click.IntRange(1), required=True, help="Number of devices.")
@click.option("--plan", "plan_file", type=click.Path(), help="A plan from `shardc plan -o`.")
@click.option("--stages-spec", "spec_file", type=click.Path(), help="A hand-written plan, JSON.")
@click.option("--cluster", help="The cluster to plan for; by default the devices it runs on.")
@plan_options
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True)
@click.option("--check", is_flag=True, help="Compare with one device; exit 1 on differences.")
@click.option("--allow-nonfinite", is_flag=True, help="Accept NaN and infinities if they agree.")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(dir_okay=False),
    help="Write a trace for Perfetto: predicted, and measured as the steps run.",
)
@click.option("--inputs", help="An .npz file; by default small random values.")
@click.option("--input-seed", type=int, default=0, show_default=True, help="Of those.")
@platform_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    file: str,
    devices: int,
    plan_file: str | None,
    spec_file: str | None,
    cluster: str | None,
    steps: int,
    check: bool,
    allow_nonfinite: bool,
    trace_file: str | None,
    inputs: str | None,
    input_seed: int,
    platform: str,
    output_format: str,
    **flags: Any,
) -> None:
    """Run FILE for some steps, each on the state that the previous one returned.

    --check compares every output of the last step with the same program on one device: in
    its own precision, and in float64, where only the order of additions may differ.
    """
    options = from_flags(flags)
    machine, own = machine_here(devices, platform, cluster)
    imported = import_file(file)
    given = given_file(plan_file, spec_file, options, flags["sharding"])
    ask_as_flagged(imported, options, flags, given)
    prepared = copy_module(imported.module)
    compiler.prepare(prepared)
    plan = plan_as_given(prepared, machine, options, given, signals=SIGNALS)
    check_plan_fits(plan, own, len(imported.arguments))
    sharded = compiler.replay(prepared, plan)
    start_s = time.perf_counter()
    lower = functools.partial(
        compiler.lower, lowering=options.lowering, early_updates=options.early_updates
    )
    executable = lower(sharded, plan)
    warn_of_held_updates(executable)
    compile_time_s = time.perf_counter() - start_s
    values = _inputs(inputs, input_seed, imported, prepared, executable)
    names = verify.result_names(imported)
    if trace_file is None:
        got = verify.outputs(executable, values, names, steps, own)
    else:
        with as_they_run() as found:
            got = verify.outputs(executable, values, names, steps, own)
        save(trace_file, [predicted(plan), *(measured(s, plan, n) for n, s in enumerate(found))])

    answer: dict[str, Any] = {
        **requested(options),
        "num_stages": plan.num_stages,
        "num_microbatches": plan.num_microbatches,
        "num_devices": len({d for stage in plan.stages for d in stage.mesh.device_ids}),
        "stage_flops": [stage.num_flops for stage in plan.stages],
        "steps": steps,
        "planning_time_s": plan.planning_time_s,
        "compile_time_s": compile_time_s,
        "step_time_s": got.step_time_s,
        "notes": [str(note) for note in plan.notes],
    }
    verdict = None
    if check:
        wide = lower(verify.widened(sharded), plan)
        verdict = _verdict(imported, executable, wide, values, got, steps, own)
        answer = {**verdict.to_dict(), **answer}
    if output_format == "json":
        print_json(answer)
    else:
        click.echo(explain(plan, executable), nl=False)
        click.echo(f"step time: {got.step_time_s:.4g} s")
        if verdict is not None:
            click.echo(str(verdict))
    if verdict is not None and not _accepted(verdict, allow_nonfinite):
        context.exit(CHECK_FAILED)


def _inputs(
    path: str | None, seed: int, imported: Imported, prepared: "Module", executable: Executable
) -> list[Array]:
    if path is not None:
        return load_inputs(path, imported.arguments)
    with prepared.context:
        main = main_function(prepared.operation)
        limits, rooted = index_limits(main), rooted_arguments(main)
    small = {*verify.state_of(executable), *rooted}
    return seeded_inputs(imported.arguments, small, limits, seed)


def _verdict(
    imported: Imported,
    executable: Executable,
    wide: Executable,
    values: list[Array],
    got: verify.Outputs,
    steps: int,
    devices: Sequence[jax.Device],
) -> verify.Verdict:
    """Compares the plan's outputs, in both precisions, with those of one device."""
    names = verify.result_names(imported)
    wide_values = [verify.widen_array(value) for value in values]
    wide_got = verify.outputs(wide, wide_values, names, steps, devices)
    state = verify.state_of(executable)
    exact = verify.references(imported, values, state, steps, devices[0])
    return verify.judge(*exact, got.values, wide_got.values)


def _accepted(verdict: verify.Verdict, allow_nonfinite: bool) -> bool:
    """Whether the check passes; a reference with NaN or infinities fails unless allowed."""
    count = verdict.own.nonfinite_reference_values
    if count and not allow_nonfinite:
        click.echo(
            f"check failed: {count} values of the reference are not finite, which proves little;"
            " give other --inputs, or --allow-nonfinite",
            err=True,
        )
        return False
    return verdict.passed
