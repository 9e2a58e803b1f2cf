"""Sets the caller's mesh aside while shardc's own programs run."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np


def no_context_mesh() -> AbstractContextManager[Any]:
    """Suspends the caller's `jax.set_mesh`: programs have their own meshes."""
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    return jax.set_mesh(jax.sharding.Mesh(np.empty((), dtype=object), ()))
