"""The caller's mesh, set aside while programs of shardc's own run."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np


def no_context_mesh() -> AbstractContextManager[Any]:
    """While it is open, `jax.set_mesh` of the caller's does not hold: programs have their own."""
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    return jax.set_mesh(jax.sharding.Mesh(np.empty((), dtype=object), ()))
