"""`shardc compile`: writes the programs that a plan makes of a module."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from shardc import compiler
from shardc.api.jax_version import usable_lowering
from shardc.api.request import check_plan_is_for
from shardc.backend.stage_text import stage_text
from shardc.cli.output import format_option, print_json
from shardc.errors import InputError, writing
from shardc.files import write_whole
from shardc.importer.from_file import import_file
from shardc.importer.requested_shardings import constrain_as_planned
from shardc.plan.decisions import Plan

if TYPE_CHECKING:
    from shardc.ir.context import Module


@click.command()
@click.argument("file")
@click.option("--plan", "plan_file", type=click.Path(), required=True, help="The plan to apply.")
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, metavar="DIR")
@click.option("--dump-dir", type=click.Path(file_okay=False), help="Write every form to this dir.")
@click.option("--lowering", type=click.Choice(["local", "xla"]), default="local")
@format_option
def command(
    file: str, plan_file: str, output: str, dump_dir: str | None, lowering: str, output_format: str
) -> None:
    """Write stage0.mlir ..., schedule.json and plan.json of FILE under a plan to DIR.

    A stage's file has all its functions. schedule.json has their order, arguments and results:
    everything else a runtime needs.
    """
    plan = Plan.load(plan_file)
    folder = _directory(output)
    dumps = _Dumps(_directory(dump_dir) if dump_dir else None)
    imported = import_file(file)
    check_plan_is_for(plan, len(imported.arguments))
    constrain_as_planned(imported, plan)
    dumps.write("import", imported.module)
    compiler.prepare(imported.module)
    dumps.write("prepare", imported.module)
    sharded = compiler.replay(imported.module, plan, dump=dumps.write)
    executable = compiler.lower(
        sharded,
        plan,
        lowering=usable_lowering("xla" if lowering == "xla" else "local"),
        dump=dumps.write,
    )
    files = []
    for stage in range(len(plan.stages)):
        programs = [program for program in executable.programs if program.stage == stage]
        files.append(folder / f"stage{stage}.mlir")
        _write(files[-1], stage_text(programs).encode())
    data = msgspec.to_builtins(executable)
    for program in data["programs"]:
        del program["module"]
    data["schedule"] = plan.schedule
    files.append(folder / "schedule.json")
    _write(files[-1], msgspec.json.format(msgspec.json.encode(data), indent=1))
    files.append(folder / "plan.json")
    plan.save(files[-1])
    if output_format == "json":
        print_json(
            {
                "num_stages": plan.num_stages,
                "files": [str(path) for path in files],
                "dumps": [str(path) for path in dumps.files],
            }
        )
    else:
        for path in files:
            click.echo(str(path))


def _directory(path: str) -> Path:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be created as a directory: {error.strerror}",
            where=path,
            help="give another path",
        ) from error
    return Path(path)


def _write(path: Path, data: bytes) -> None:
    with writing("a file", path):
        write_whole(path, data)


class _Dumps:
    """Numbered files, one per intermediate form; shardc-opt can start from any."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def write(self, name: str, module: "Module") -> None:
        if self.folder is not None:
            self.files.append(self.folder / f"{len(self.files):02}-{name}.mlir")
            text = module.operation.get_asm(enable_debug_info=False)
            _write(self.files[-1], str(text).encode())
