"""`shardc warm`: plans and compiles ahead of time, so that a program starts without delay."""

from typing import Any

import click
import jax

from shardc import compiler
from shardc.api.function import ShardedFunction
from shardc.api.planning import plan_cache
from shardc.api.planning.find import plan_as_given
from shardc.backend.programs import compile_programs
from shardc.cli import SIGNALS
from shardc.cli.export import example, named
from shardc.cli.output import format_option, print_json
from shardc.cli.plan_options import ask_as_flagged, from_flags, plan_options
from shardc.cli.run_devices import machine_here, platform_option, start_devices
from shardc.errors import InputError
from shardc.importer.from_file import import_file
from shardc.plan.decisions import Plan


@click.command()
@click.argument("program", metavar="FILE|MODULE:FUNCTION")
@click.argument("arguments", required=False)
@click.option("--devices", type=click.IntRange(1), required=True, help="How many it will run on.")
@click.option("--cluster", help="For FILE: the cluster to plan for; by default these devices.")
@plan_options
@platform_option
@format_option
def command(
    program: str,
    arguments: str | None,
    devices: int,
    cluster: str | None,
    platform: str,
    output_format: str,
    **flags: Any,
) -> None:
    """Plan and compile ahead what a program will run, and cache it.

    FUNCTION (train:step) is a shardc.jit function, and its options apply; ARGUMENTS (train:example)
    is a tuple of its arguments, or a function that returns one; jax.ShapeDtypeStructs will do.
    FILE is warmed for `shardc run` with the same options. Plans go to the plan cache, programs to
    JAX's persistent compilation cache if JAX_COMPILATION_CACHE_DIR is set.
    """
    # Cache programs that compile fast as well: there are many, and they add up.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    if arguments is None:
        plan, count = _warm_file(program, devices, cluster, platform, flags)
    else:
        if cluster is not None or any(flags.values()):
            raise click.UsageError("FUNCTION takes its planning options from its own shardc.jit")
        plan, count = _warm_function(program, arguments, devices, platform)
    kept = jax.config.jax_compilation_cache_dir if jax.config.jax_enable_compilation_cache else None
    file = plan_cache.directory() / f"{plan.fingerprint}.json"
    if output_format == "json":
        print_json({"plan": str(file), "programs": count, "programs_kept_in": kept})
        return
    click.echo(f"plan: {plan}, cached as {file}")
    if kept:
        click.echo(f"programs: {count} compiled, cached in {kept}")
    else:
        help_ = "set JAX_COMPILATION_CACHE_DIR here and where the program runs"
        click.echo(f"programs: {count} compiled and not cached; {help_}")


def _warm_function(name: str, arguments: str, devices: int, platform: str) -> tuple[Plan, int]:
    # Set no XLA flags: they are part of the key of JAX's compilation cache.
    start_devices(devices, platform, patient=False)
    function = named(name)
    if not isinstance(function, ShardedFunction):
        raise InputError(
            f"'{name}' is not a shardc.jit function",
            help="name the function that the program calls, such as step = shardc.jit(train_step,"
            " donate_argnums=0): its options decide the plan",
        )
    compiled = function.warm_up(*example(arguments))
    return compiled.plan, len(compiled.programs)


def _warm_file(
    file: str, devices: int, cluster: str | None, platform: str, flags: dict[str, Any]
) -> tuple[Plan, int]:
    options = from_flags(flags)
    machine, own = machine_here(devices, platform, cluster)
    imported = import_file(file)
    ask_as_flagged(imported, options, flags)
    compiler.prepare(imported.module)
    plan = plan_as_given(imported.module, machine, options, None, signals=SIGNALS)
    sharded = compiler.replay(imported.module, plan)
    executable = compiler.lower(sharded, plan, lowering=options.lowering)
    return plan, len(compile_programs(executable, own))
