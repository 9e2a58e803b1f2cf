"""Output of the subcommands: one JSON object, or text for people."""

import json
from collections.abc import Callable
from typing import Any

import click


def format_option[Command: Callable[..., Any]](command: Command) -> Command:
    """Adds `--format text|json` as the parameter `output_format`."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json prints one JSON object on standard output and nothing else.",
    )(command)


def print_json(data: dict[str, Any]) -> None:
    """Prints `data` as one line of strict JSON on standard output (NaN and infinities as null)."""
    click.echo(json.dumps(_finite(data), allow_nan=False))


def _finite(data: Any) -> Any:
    """`data` with None for floats that JSON cannot represent."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and (data != data or abs(data) == float("inf")):
        return None
    return data
