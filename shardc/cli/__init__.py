"""The `shardc` command: each subcommand is a module of this package, loaded when it is invoked."""

import importlib
import os
import signal
import sys
import traceback

import click

from shardc.errors import BugError, ShardcError
from shardc.solver.interrupt import remembered, was_signalled
from shardc.version import VERSION

COMMANDS = {
    "plan": "Plan a StableHLO file for a cluster.",
    "run": "Run a StableHLO file on the devices of this machine.",
    "compile": "Write the programs of a plan's stages.",
    "warm": "Plan and compile ahead of time, for starts without delay.",
    "explain": "Describe a plan in words.",
    "export": "Write a Python function as a StableHLO file.",
    "launch": "Run a script in several processes on this machine.",
    "calibrate": "Measure the devices of this machine and write a cluster file.",
    "report": "Write an HTML page about a plan.",
    "lint": "List avoidable costs of a program.",
    "what-if": "Plan a program for many machines and print a table.",
    "doctor": "Check what works on this machine.",
    "simulate": "Simulate a pipeline schedule without devices.",
}
"""Module of this package with a click command named `command` -> one line of help."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # planning returns the best plan; all else exits with 130
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class Commands(click.Group):
    """Imports a subcommand when it is invoked, and turns errors into exit codes.

    0 done, 1 check failed, 2 bad input or usage, 3 no feasible plan, 4 a bug in shardc,
    130 interrupted.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command), f"{name}.py defines no click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            with remembered(SIGNALS):
                return super().invoke(ctx)
        except BugError as error:
            _print_bug(error)
            ctx.exit(error.exit_code)
        except ShardcError as error:
            click.echo(str(error), err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except (click.exceptions.Exit, click.Abort, click.UsageError, BrokenPipeError):
            raise
        except click.ClickException as error:
            error.show()
            ctx.exit(EXIT_BAD_INPUT)
        except Exception as error:  # noqa: BLE001 - anything else is a bug in shardc: exit 4
            _print_bug(error)
            ctx.exit(BugError.exit_code)


def _print_bug(error: Exception) -> None:
    """The message for a failure that no user can cause; with a traceback only on request."""
    from shardc.ir.bugs import bug_of

    if os.environ.get("SHARDC_TRACEBACK"):
        click.echo("".join(traceback.format_exception(error)), err=True)
    bug = error if isinstance(error, BugError) else bug_of(error, "running the command", None)
    click.echo(str(bug), err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="shardc")
def main() -> None:
    """Plans, compiles and runs StableHLO programs on many devices."""


def command_line() -> None:
    """`main` as a process of its own.

    After Ctrl-C it ends at once, with a plan or without: Python would first tear down all that
    planning has built, which takes longer than the command takes to notice.
    """
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
        if was_signalled() and isinstance(code, int):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
        raise
