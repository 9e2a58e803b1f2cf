"""Brings values on several meshes to one device."""

from typing import Any

import jax
from jax.sharding import NamedSharding

from shardc.errors import InputError
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.messages.array_moves import in_each_process


def gather(tree: Any, device: jax.Device | None = None) -> Any:
    """The same pytree with every array on one device of this process.

    The leaves of a pipelined state are on different devices, and JAX refuses to compute with two
    of them at once; gathered, they can be combined. Waits for the values, and the device must have
    memory for them. The given arrays stay as they are. In a job of several processes all of them
    call this with the same tree, and each gets it whole.

    Args:
        tree: any pytree; leaves other than `jax.Array`s are returned unchanged.
        device: the target; by default the first of this process.
    Raises:
        InputError: SHARDC-180, `device` is not a device.
    """
    target = jax.local_devices()[0] if device is None else device
    if not isinstance(target, jax.Device):
        raise InputError(
            f"{device!r} is not a JAX device", help="give one, such as jax.devices()[0]"
        )
    leaves, structure = jax.tree.flatten(tree)
    with no_context_mesh():
        # In a job, an array on a mesh is one array of all processes.
        spread = [i for i, leaf in enumerate(leaves) if _is_on_mesh(leaf)]
        for i, whole in zip(spread, in_each_process([leaves[i] for i in spread]), strict=True):
            leaves[i] = whole
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array):
                # A copy, because a replicated value may otherwise share its buffer with the
                # original, and a step that donates the original would delete the gathered value.
                leaves[i] = jax.numpy.copy(jax.device_put(leaf, target))
    return jax.tree.unflatten(structure, leaves)


def _is_on_mesh(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding)
