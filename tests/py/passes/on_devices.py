"""Runs @main whole, or localised on every device of a mesh, by either engine."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.check.forms import on_devices
from shardc.check.forms.engines import XLA_OPTIONS, Engine, interpreter, xla_with
from shardc.ir.walk import main_function
from shardc.plan.layout import Mesh

Arrays = list[np.ndarray]

# XLA makes selects of products with converted predicates, which ends NaNs: where it sees one. FFTs
# cannot do without what this leaves out.
AS_WRITTEN = {**XLA_OPTIONS, "xla_disable_hlo_passes": "algsimp"}

# In older releases the interpreter has fewer threads than devices on small machines, and stops.
INTERPRETER_RUNS_DEVICES = jax.__version_info__ >= (0, 12, 0)


def run_whole(
    module: ir.Module,
    args: Sequence[np.ndarray],
    *,
    xla: bool = False,
    options: Mapping[str, Any] = XLA_OPTIONS,
) -> Arrays:
    """@main on one device, which sees whole values; `options` are XLA's."""
    engine = _engine(xla, options)  # they differ on windows out of bounds
    return engine(module.operation, main_function(module.operation), 1)([list(args)])[0]


def run_local(
    module: ir.Module,
    mesh: Mesh,
    args: Sequence[np.ndarray],
    *,
    xla: bool = False,
    options: Mapping[str, Any] = XLA_OPTIONS,
) -> Arrays:
    """The localised @main on all devices of `mesh`, from whole arguments to whole results."""
    main = main_function(module.operation)
    run = _engine(xla, options)(module.operation, main, len(mesh.device_ids))
    return on_devices.run_local(main, mesh, args, run)


def _engine(xla: bool, options: Mapping[str, Any]) -> Engine:
    return xla_with(options) if xla or not INTERPRETER_RUNS_DEVICES else interpreter
