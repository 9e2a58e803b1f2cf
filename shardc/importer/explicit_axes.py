"""Programs traced under a mesh of explicit axes, where JAX writes a sharding on every value."""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.sharding import AbstractMesh, AxisType

from shardc.ir.attributes import (
    SHARDING,
    arg_attrs,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
)
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import all_functions, walk


def is_explicit(mesh: AbstractMesh) -> bool:
    """Whether all axes of a mesh with several devices are explicit."""
    return not mesh.empty and mesh.size > 1 and set(mesh.axis_types) == {AxisType.Explicit}


def drop_unsplit_shardings(module: ir.Module) -> None:
    """Removes the shardings of a program in which none names an axis.

    JAX types every value by its sharding there, so a function that never mentions one is full of
    replicated values. These are no wish of the user; as constraints they would fix the mesh of
    every stage. If one value is split, all shardings stay.

    Args:
        module: traced under a mesh whose axes are all explicit.
    """
    with module.context:
        functions = list(all_functions(module.operation))
        constraints = [op for f in functions for op in walk(f) if op.name == CONSTRAINT]
        values = [*map(arg_attrs, functions), *map(result_attrs, functions)]
        shardings = [op.attributes["sharding"] for op in constraints]
        shardings += [each[SHARDING] for own in values for each in own if SHARDING in each]
        on_ops = [op for f in functions for op in walk(f) if SHARDING in op.attributes]
        for op in on_ops:
            shardings += sdy.TensorShardingPerValueAttr(op.attributes[SHARDING]).shardings
        if any(map(_names_an_axis, shardings)):
            return
        for op in constraints:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        for op in on_ops:
            del op.attributes[SHARDING]
        for function in functions:
            for read, write in ((arg_attrs, set_arg_attrs), (result_attrs, set_result_attrs)):
                attrs = read(function)
                for each in attrs:
                    each.pop(SHARDING, None)
                write(function, attrs)


def _names_an_axis(attribute: ir.Attribute) -> bool:
    sharding = sdy.TensorShardingAttr(attribute)
    dims = [sdy.DimensionShardingAttr(dim) for dim in sharding.dimension_shardings]
    return (
        any(len(dim.axes) for dim in dims)
        or len(sharding.replicated_axes) > 0
        or len(sharding.unreduced_axes) > 0
    )
