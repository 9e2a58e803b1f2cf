"""The sharded form: every op of a stage has shardings for its operands and results."""

from jax.extend.mlir import ir

from shardc.ir.attributes import IN_SHARDINGS, SHARDING, STAGE, get_int
from shardc.ir.shardings import from_attr, mesh_name, meshes, result_shardings
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import functions, planned_ops, symbol
from shardc.plan.layout import Mesh, TensorSharding
from shardc.specs.form import edges, expect

FORM = "sharded"


def verify(module: ir.Operation) -> None:
    """Checks a module after `shardc-plan-shardings` or `shardc-apply-shardings`.

    Each function uses the mesh of its stage; each argument, result and op has its shardings; each
    sharding has the rank of its value, divides its dims evenly, and uses an axis at most once.

    Raises:
        FormError: SHARDC-999.
    """
    known = meshes(module)
    for function in functions(module):
        name = f"stage{get_int(function, STAGE)}"
        expect(name in known, FORM, f"@{symbol(function)} has no mesh @{name}", function)
        mesh = known[name]
        for named, value in edges(function):
            expect(SHARDING in named, FORM, "an argument or result has no sharding", function)
            _check(named[SHARDING], value, name, mesh, function)
        for op in planned_ops(function):
            if len(op.results) > 0:
                _check_op(op, name, mesh)


def _check_op(op: ir.Operation, name: str, mesh: Mesh) -> None:
    given = result_shardings(op)
    expect(given is not None and len(given) == len(op.results), FORM, "shardings are missing", op)
    for sharding, value in zip(given or (), op.results, strict=True):
        _check_fit(sharding, value, mesh, op)
    expect(IN_SHARDINGS in op.attributes, FORM, f"{IN_SHARDINGS} is missing", op)
    wanted = list(ir.ArrayAttr(op.attributes[IN_SHARDINGS]))
    expect(len(wanted) == len(op.operands), FORM, f"{len(wanted)} operands are sharded", op)
    for attribute, operand in zip(wanted, op.operands, strict=True):
        _check(attribute, operand, name, mesh, op)


def _check(
    attribute: ir.Attribute, value: ir.Value, name: str, mesh: Mesh, op: ir.Operation
) -> None:
    expect(mesh_name(attribute) == name, FORM, f"a sharding is not over @{name}", op)
    _check_fit(from_attr(attribute), value, mesh, op)


def _check_fit(sharding: TensorSharding, value: ir.Value, mesh: Mesh, op: ir.Operation) -> None:
    shape = shape_of(value)
    expect(len(sharding.dims) == len(shape), FORM, f"{sharding.dims} of a {value.type}", op)
    axes = (*sharding.axes, *sharding.unreduced)
    expect(len(set(axes)) == len(axes), FORM, f"an axis stands twice in {sharding}", op)
    for size, split in zip(shape, sharding.dims, strict=True):
        count = mesh.num_shards(split)
        expect(size % count == 0, FORM, f"a dim of {size} in {count} parts", op)
