"""The properties of a call that select its program, as in `jax.jit`."""

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType

from shardc.importer.from_jax import is_on_host
from shardc.importer.program import Imported
from shardc.ir.copy import module_digest


def key_of_call(
    tree: jax.tree_util.PyTreeDef,
    leaves: Sequence[Any],
    static: Sequence[tuple[int | str, Any]],
) -> Any:
    """A key that is equal for two calls that JAX traces alike; placement of arrays does not count.

    Hashable if the static values are.
    """
    context = jax.sharding.get_abstract_mesh()
    explicit = context if AxisType.Explicit in context.axis_types else None
    types = tuple(_type_of(leaf, explicit) for leaf in leaves)
    # 1, 1.0 and True are equal, but a function may tell them apart.
    constants = tuple((name, type(value), value) for name, value in static)
    return tree, types, constants, context, _config()


def program_of(imported: Imported) -> Hashable:
    """A key that is equal for traces that can share compiled programs: weak types may differ."""
    return (
        module_digest(imported.module, weak_types=False),
        imported.in_tree,
        imported.out_tree,
        tuple(argument.key_impl for argument in imported.arguments),
        tuple((result.key_impl, result.memory_kind) for result in imported.results),
        imported.host_calls,
    )


def _type_of(leaf: Any, explicit: AbstractMesh | None) -> Any:
    """The abstract value; a Python 0 is a weakly typed int32[]."""
    if isinstance(leaf, jax.Array):
        aval = leaf.aval
        if explicit is not None and aval.sharding.mesh == explicit:
            return aval.shape, aval.dtype, aval.weak_type, aval.memory_space, aval.sharding
        return aval.shape, aval.dtype, aval.weak_type, aval.memory_space
    if isinstance(leaf, np.ndarray | np.generic | bool | int | float | complex):
        aval = jax.typeof(leaf)
        return aval.shape, aval.dtype, aval.weak_type, aval.memory_space
    if isinstance(leaf, jax.ShapeDtypeStruct):
        sharding = leaf.sharding
        memory = (
            jax.memory.Space.Host if sharding and is_on_host(sharding) else jax.memory.Space.Device
        )
        return leaf.shape, leaf.dtype, bool(leaf.weak_type), memory
    return type(leaf)


def _config() -> tuple[Any, ...]:
    """The JAX settings that a trace depends on."""
    config = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_numpy_dtype_promotion,
        config.jax_default_prng_impl,
        config.jax_threefry_partitionable,
        config.jax_random_seed_offset,
        config.jax_high_dynamic_range_gumbel,
    )
