"""The planning options of `plan`, `run` and other commands."""

import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

import click
from jax.sharding import PartitionSpec

from shardc.api import request
from shardc.cli.plan_json import check_batch_args
from shardc.errors import InputError
from shardc.importer.program import Imported
from shardc.importer.requested_shardings import constrain_as_planned, constrain_by_patterns
from shardc.options import EqualLayers, PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import StagesSpec

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def plan_options[Command: Callable[..., Any]](command: Command) -> Command:
    """Adds the planning options; `from_flags` turns them into PlanOptions."""
    for option in reversed(
        (
            click.option("--stages", help="Pipeline stages: a number, or auto."),
            click.option("--microbatches", help="Microbatches: a number, or auto."),
            click.option("--schedule", help="Name of a schedule, or auto."),
            click.option("--chunks", help="Stages per device group: a number, or auto."),
            click.option("--slices", help="Token slices per microbatch: a number, or auto."),
            click.option(
                "--mesh",
                help="Mesh of every stage: 2x4, with axis names data=2,model=4, or auto.",
            ),
            click.option(
                "--sharding",
                multiple=True,
                metavar="PATTERN=SPEC",
                help="Sharding of arguments, such as 'params.*.kernel=-,model'; may be repeated.",
            ),
            click.option("--batch-args", help="Arguments that hold the batch, such as 3,4."),
            click.option("--memory-limit", help="Per device, such as 16GiB."),
            click.option("--time-limit", type=float, help="Seconds for planning."),
            click.option("--seed", type=int, help="Seed of the solver."),
            click.option(
                "--equal-layers",
                type=click.Choice(get_args(EqualLayers)),
                help="When equal layers share their shardings: at first, always, or never.",
            ),
            click.option("--lowering", type=click.Choice(["local", "xla"]), help="The lowering."),
            click.option(
                "--early-updates",
                is_flag=True,
                default=None,
                help="When run, each stage updates its state before the others have ended.",
            ),
        )
    ):
        command = option(command)
    return command


def ask_as_flagged(
    imported: Imported,
    options: PlanOptions,
    flags: dict[str, Any],
    given: Plan | StagesSpec | None = None,
) -> None:
    """Checks the requested batch arguments, and writes the requested shardings into the program:
    those of the flags, and those that a given plan was made with.

    Raises:
        InputError: SHARDC-180, 186, they name no argument, or no axis of the mesh; 204, the plan
            was made with others.
    """
    check_batch_args(options.batch_args, imported)
    shardings = argument_shardings(flags["sharding"])
    axes = given.stages[0].mesh.axes if isinstance(given, Plan) else mesh_axes(flags["mesh"])
    constrain_by_patterns(imported, shardings, axes)
    if isinstance(given, Plan):
        constrain_as_planned(imported, given)


def from_flags(flags: dict[str, Any]) -> PlanOptions:
    """PlanOptions from command-line flags (None: not given).

    Raises:
        InputError: SHARDC-180, a value is invalid.
    """
    given = {name: v for name, v in flags.items() if v is not None and name != "sharding"}
    if "memory_limit" in given:
        given["memory_limit_bytes"] = num_bytes(given.pop("memory_limit"))
    if "time_limit" in given:
        given["time_limit_s"] = given.pop("time_limit")
    for name in ("stages", "microbatches", "chunks", "slices"):
        if given.get(name, "auto") != "auto":
            given[name] = _whole(f"--{name}", given[name])
    if "=" in given.get("mesh", ""):
        given["mesh"] = dict(mesh_axes(given["mesh"]))
    elif given.get("mesh", "auto") != "auto":
        given["mesh"] = tuple(_whole("--mesh", size) for size in given["mesh"].split("x"))
    if "batch_args" in given:
        parts = given["batch_args"].split(",")
        given["batch_args"] = tuple(_whole("--batch-args", part, least=0) for part in parts)
    return request.plan_options(**given)


def mesh_axes(text: str | None) -> tuple[tuple[str, int], ...]:
    """The axes that `--mesh data=2,model=4` names; () for a mesh without names."""
    if text is None or "=" not in text:
        return ()
    pairs = (item.partition("=") for item in text.split(","))
    return tuple((name.strip(), _whole("--mesh", size)) for name, _, size in pairs)


def argument_shardings(texts: Sequence[str]) -> dict[str, PartitionSpec]:
    """The shardings that `--sharding PATTERN=SPEC` requests.

    SPEC has one word per dim: axes joined by `*`, `-` for a dim that is not split, `?` for one left
    to the planner, as in `params.*.kernel=-,data*model`.

    Raises:
        InputError: SHARDC-180, not a SPEC.
    """
    found = {}
    for text in texts:
        pattern, equals, spec = text.rpartition("=")
        if not equals or not pattern:
            raise InputError(
                f"'{text}' in --sharding is not a pattern and a sharding",
                help="write, for example, --sharding 'params.*.kernel=-,model'",
            )
        found[pattern] = PartitionSpec(*(_entry(word.strip()) for word in spec.split(",")))
    return found


def _entry(word: str) -> Any:
    if word in ("-", ""):
        return None
    return PartitionSpec.UNCONSTRAINED if word == "?" else tuple(word.split("*"))


def _whole(option: str, text: str, least: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise InputError(
            f"'{text}' in {option} is not an integer of at least {least}",
            help="write, for example, --stages 2, --mesh 2x4 or --batch-args 3,4",
        )
    return number


def num_bytes(text: str) -> int:
    """`16GiB`, `500MB` or `1000000` as bytes; InputError (SHARDC-180) for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]i?)?B?\s*", text, re.IGNORECASE)
    if match is None:
        raise InputError(
            f"'{text}' is not a memory size", help="write, for example, --memory-limit 16GiB"
        )
    unit = (match[2] or "").capitalize()
    return int(float(match[1]) * _UNITS[unit])
