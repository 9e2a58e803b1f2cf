"""Brings values on several meshes to one device."""

from typing import Any

import jax

from shardc.runtime.context_mesh import no_context_mesh


def gather(tree: Any, device: jax.Device | None = None) -> Any:
    """The same pytree with every array on one device.

    The leaves of a pipelined state are on different devices, and JAX refuses to compute with two
    of them at once; gathered, they can be combined. Waits for the values, and the device must have
    memory for them. The given arrays stay as they are.

    Args:
        tree: any pytree; leaves other than `jax.Array`s are returned unchanged.
        device: the target; by default the first of the job.
    """
    target = jax.local_devices()[0] if device is None else device

    def bring(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        # A copy, because a replicated value may otherwise share its buffer with the original, and
        # a step that donates the original would delete the gathered value with it.
        return jax.numpy.copy(jax.device_put(leaf, target))

    with no_context_mesh():
        return jax.tree.map(bring, tree)
