"""Remove sharding annotations that constrain nothing."""

import re
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.errors import PlanError
from shardc.ir.attributes import (
    SHARDING,
    arg_attrs,
    call_target,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
)
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, walk, where, where_step

_GSPMD = "mhlo.sharding"
_SAYS_NOTHING = re.compile(r'"\{(replicated|maximal device=0)\}"')


def _num_devices(mesh: sdy.MeshAttr) -> int:
    count = 1
    for axis in mesh.axes:
        count *= int(sdy.MeshAxisAttr(axis).size)
    return count


class _Meshes:
    """Which shardings are trivial: on one device, or open in every dim."""

    def __init__(self, module: ir.Operation) -> None:
        block = module.regions[0].blocks[0]
        self.ops = {
            str(ir.StringAttr(op.operation.attributes["sym_name"]).value): op.operation
            for op in block.operations
            if op.operation.name == "sdy.mesh"
        }
        self.single = {
            name
            for name, op in self.ops.items()
            if _num_devices(sdy.MeshAttr(op.attributes["mesh"])) == 1
        }

    def is_trivial(self, attribute: ir.Attribute) -> bool:
        sharding = sdy.TensorShardingAttr(attribute)
        mesh = sharding.mesh_or_ref
        if isinstance(mesh, ir.FlatSymbolRefAttr):
            if mesh.value in self.single:
                return True
        elif _num_devices(sdy.MeshAttr(mesh)) == 1:
            return True
        dims = [sdy.DimensionShardingAttr(dim) for dim in sharding.dimension_shardings]
        fixed = any(dim.is_closed or len(dim.axes) > 0 for dim in dims) or not dims
        return not fixed and len(sharding.replicated_axes) == 0


def _strip_dicts(
    entries: list[dict[str, ir.Attribute]], meshes: _Meshes, place: str | None
) -> list[dict[str, ir.Attribute]]:
    for entry in entries:
        if SHARDING in entry and meshes.is_trivial(entry[SHARDING]):
            del entry[SHARDING]
        if _GSPMD in entry:
            _check_gspmd(entry.pop(_GSPMD), place)
    return entries


def _check_gspmd(attribute: ir.Attribute, place: str | None) -> None:
    if not _SAYS_NOTHING.fullmatch(str(attribute)):
        raise PlanError(
            f"the sharding {attribute} is in the old GSPMD form",
            where=place,
            code="SHARDC-202",
            help="export with the Shardy partitioner (jax_use_shardy_partitioner, JAX's default)",
        )


def _symbols(op: ir.Operation) -> set[str]:
    attributes = op.attributes
    texts = [str(attributes[i].attr) for i in range(len(attributes))]
    return {name for text in texts for name in re.findall(r"@([\w$.-]+)", text)}


def _constrains_nothing(op: ir.Operation, meshes: _Meshes) -> bool:
    if op.name == "sdy.sharding_constraint":
        return meshes.is_trivial(op.attributes["sharding"])
    return call_target(op) == "Sharding"  # of the GSPMD form, and checked to be replicated


@dataclass(frozen=True)
class StripShardings(Pass):
    """Removes shardings on meshes of one device, fully open ones, and replicated GSPMD ones.

    JAX emits them around random keys, host callbacks and programs for one device. User shardings on
    larger meshes stay; a nontrivial sharding in the old GSPMD form is refused (SHARDC-202). Meshes
    of one device are removed. A second run changes nothing.
    """

    name = "shardc-strip-shardings"

    def apply(self, module: ir.Operation) -> None:
        meshes = _Meshes(module)
        used: set[str] = set()
        for function in functions(module):
            if len(function.regions[0].blocks) > 0:
                place = where_step(function)
                set_arg_attrs(function, _strip_dicts(arg_attrs(function), meshes, place))
                set_result_attrs(function, _strip_dicts(result_attrs(function), meshes, place))
        for op in list(walk(module)):
            if op.name in ("sdy.mesh", "func.func"):
                continue
            if _GSPMD in op.attributes:
                _check_gspmd(op.attributes[_GSPMD], where(op))
                del op.attributes[_GSPMD]
            if _constrains_nothing(op, meshes):
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
                continue
            if SHARDING in op.attributes:
                values = sdy.TensorShardingPerValueAttr(op.attributes[SHARDING]).shardings
                if all(map(meshes.is_trivial, values)):
                    del op.attributes[SHARDING]
            if op.name.startswith("sdy.") or SHARDING in op.attributes:
                used.update(_symbols(op))
        for name in meshes.single - used:
            meshes.ops[name].erase()
