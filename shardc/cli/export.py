"""`shardc export`: a Python function as a StableHLO file for the other commands."""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from shardc.api.export import export
from shardc.cli.output import format_option, print_json
from shardc.errors import InputError
from shardc.importer.from_file import import_file
from shardc.importer.program import Imported


@click.command()
@click.argument("function")
@click.argument("arguments")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, metavar="FILE")
@click.option("--donate", default="", help="Positions of donated arguments (the state), e.g. 0,1.")
@format_option
def command(function: str, arguments: str, output: str, donate: str, output_format: str) -> None:
    """Write FUNCTION (train:step) to FILE, with the names of its arguments and source lines.

    ARGUMENTS (train:example) is a tuple of the call's arguments, or a function that returns one.
    Arrays may be jax.ShapeDtypeStructs, so nothing has to fit into memory. Functions of jax.jit and
    shardc.jit keep their donated and static arguments.
    """
    _export(function, arguments, output, donate)
    if output_format == "json":
        print_json({"file": output})
    else:
        click.echo(output)


def _export(
    function: str, arguments: str, output: str, donate: str, size: int | None = None
) -> None:
    """Writes a user function; raises the errors of the command."""
    fun, args = named(function), example(arguments, size)
    try:
        positions = tuple(int(position) for position in donate.split(",") if position)
    except ValueError as error:
        raise InputError(
            f"--donate {donate} is not a list of positions", help="write --donate 0,1"
        ) from error
    of_the_user(function, export, fun, *args, path=output, donate_argnums=positions)


def program(
    file: str, arguments: str | None, donate: str = "", size: int | None = None
) -> Imported:
    """A StableHLO file, or a function (`module:name`) with arguments given the same way.

    Args:
        size: argument of the function that makes the arguments, if any.
    """
    if arguments is None:
        return import_file(file)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "step.mlir")
        _export(file, arguments, path, donate, size)
        return import_file(path)


def example(arguments: str, size: int | None = None) -> tuple[Any, ...]:
    """The tuple that `module:name` names, or returns.

    Args:
        size: argument of the call, if any.
    """
    args = named(arguments)
    if callable(args):
        args = of_the_user(arguments, args, *(() if size is None else (size,)))
    if not isinstance(args, tuple):
        raise InputError(
            f"'{arguments}' is not a tuple of arguments, but of type {type(args).__name__}",
            help="write (state, batch), or (x,) for a single argument",
        )
    return args


def named(name: str) -> Any:
    """The object that `module:name` names, with the current directory first on the path."""
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise InputError(f"'{name}' does not name an object of a module", help="write module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = of_the_user(name, importlib.import_module, module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"the module '{module}' has no '{path}'", help=f"it is {found.__file__}"
            )
        found = getattr(found, part)
    return found


def of_the_user(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls user code; turns what it raises into an InputError (SHARDC-180)."""
    try:
        return call(*args, **kwargs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"'{name}' failed with {type(error).__name__}: {error}",
            help="call it in Python first; the command imports the module from here",
        ) from error
