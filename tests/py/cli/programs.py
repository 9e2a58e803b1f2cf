"""A small program in a file, and the command called as a function."""

from pathlib import Path

import jax
from click.testing import CliRunner, Result

from shardc.cli import main
from tests.py.programs import build


def shardc(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def write_mlp(folder: Path) -> Path:
    """The MLP's training step as StableHLO; arguments 0-9 are state, 10 and 11 the batch."""
    program = build("mlp")
    lowered = jax.jit(program.step, donate_argnums=0).lower(*program.args)
    path = folder / "mlp.mlir"
    path.write_text(lowered.as_text())
    return path
