"""Runs one function: directly or, once localised, on the devices of its mesh."""

from collections.abc import Callable

from jax.extend.mlir import ir

from shardc.check.forms.engines import Arrays, Engine
from shardc.check.forms.on_devices import run_local
from shardc.ir.attributes import SHARDING, arg_attrs, is_local, result_attrs
from shardc.ir.calls import functions_by_name
from shardc.ir.shardings import mesh_name, meshes
from shardc.plan.layout import Mesh

ONE_DEVICE = Mesh((), (0,))


def run_function(module: ir.Operation, name: str, args: Arrays, engine: Engine) -> Arrays:
    """The results of one function, from whole arguments to whole results."""
    return runner(module, functions_by_name(module)[name], engine)(args)


def runner(
    module: ir.Operation, function: ir.Operation, engine: Engine
) -> Callable[[Arrays], Arrays]:
    """`function`, ready to be called with whole arrays."""
    if not is_local(function):
        run = engine(module, function, 1)
        return lambda args: run([args])[0]
    mesh = _mesh_of(module, function)
    run_all = engine(module, function, len(mesh.device_ids))
    return lambda args: run_local(function, mesh, args, run_all)


def _mesh_of(module: ir.Operation, function: ir.Operation) -> Mesh:
    placed = meshes(module)
    for attrs in (*arg_attrs(function), *result_attrs(function)):
        if SHARDING in attrs:
            return placed[mesh_name(attrs[SHARDING])]
    return ONE_DEVICE
