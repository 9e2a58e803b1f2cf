"""The options with which `plan` and `run` ask for a plan."""

import re
from collections.abc import Callable
from typing import Any

import click

from shardc import request
from shardc.errors import InputError
from shardc.options import PlanOptions

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def plan_options[Command: Callable[..., Any]](command: Command) -> Command:
    """Adds the options that say what to plan; `from_flags` makes PlanOptions of them."""
    for option in reversed(
        (
            click.option("--stages", help="Stages of the pipeline: a number, or auto."),
            click.option("--microbatches", help="Parts of the batch: a number, or auto."),
            click.option("--schedule", help="gpipe, 1f1b or auto."),
            click.option("--mesh", help="Shape of every stage's mesh, such as 2x4, or auto."),
            click.option("--batch-args", help="Arguments that hold the batch, such as 3,4."),
            click.option("--memory-limit", help="Of each device, such as 16GiB."),
            click.option("--time-limit", type=float, help="Of planning, in seconds."),
            click.option("--seed", type=int, help="Of the solver."),
            click.option("--lowering", type=click.Choice(["local", "xla"]), help="How to lower."),
        )
    ):
        command = option(command)
    return command


def from_flags(flags: dict[str, Any]) -> PlanOptions:
    """PlanOptions of what was given on the command line (None: not given).

    Raises:
        InputError: SHARDC-180, a value has no meaning.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    if "memory_limit" in given:
        given["memory_limit_bytes"] = num_bytes(given.pop("memory_limit"))
    if "time_limit" in given:
        given["time_limit_s"] = given.pop("time_limit")
    for name in ("stages", "microbatches"):
        if given.get(name, "auto") != "auto":
            given[name] = _whole(f"--{name}", given[name])
    if given.get("mesh", "auto") != "auto":
        given["mesh"] = tuple(_whole("--mesh", size) for size in given["mesh"].split("x"))
    if "batch_args" in given:
        parts = given["batch_args"].split(",")
        given["batch_args"] = tuple(_whole("--batch-args", part, least=0) for part in parts)
    return request.plan_options(**given)


def _whole(option: str, text: str, least: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise InputError(
            f"'{text}' in {option} is not a whole number from {least} on",
            help="write, for example, --stages 2, --mesh 2x4 or --batch-args 3,4",
        )
    return number


def num_bytes(text: str) -> int:
    """`16GiB`, `500MB` or `1000000` as bytes; InputError (SHARDC-180) for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]i?)?B?\s*", text, re.IGNORECASE)
    if match is None:
        raise InputError(
            f"'{text}' is not an amount of memory", help="write, for example, --memory-limit 16GiB"
        )
    unit = (match[2] or "").capitalize()
    return int(float(match[1]) * _UNITS[unit])
