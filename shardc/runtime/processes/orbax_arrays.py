"""Lets orbax save and restore arrays that lie on some processes of a job and not on others.

orbax wants every array in every process: it refuses one whose devices all belong to this process
(it might be a local one) and fails where a process holds no piece of one. The state of a pipeline
is full of both. Here each process writes and reads the pieces that it has; files, commits and
metadata stay orbax's own.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from shardc.errors import InputError
from shardc.runtime.processes.arrays import assembled, is_here, nowhere_here, pieces_of


def use_orbax() -> None:
    """Lets orbax save and restore the state of a job of several processes; all call it, first.

    Replaces orbax's handler of `jax.Array`. Without effect in a job of one process.

    Raises:
        ImportError: orbax-checkpoint is not installed.
    """
    if jax.process_count() > 1:
        handlers: Any = import_module("orbax.checkpoint").type_handlers
        handlers.register_type_handler(jax.Array, _handler(handlers), override=True)


class JobSharding(NamedSharding):
    """A sharding of an array of the whole job, also where all its devices are this process's."""

    @property
    def is_fully_addressable(self) -> bool:
        """Never: the other processes pass the same array, with their own pieces or none."""
        return False


def _handler(handlers: Any) -> Any:
    class JobArrays(handlers.ArrayHandler):  # type: ignore[misc]  # orbax is no dependency
        """orbax's own, of the arrays that this process has pieces of."""

        async def serialize(
            self, values: Sequence[jax.Array], infos: Sequence[Any], args: Any = None
        ) -> Any:
            here = [i for i, value in enumerate(values) if is_here(value.sharding)]
            if not here:
                return []
            own = [_of_the_job(values[i]) for i in here]
            chosen = None if args is None else [args[i] for i in here]
            return await super().serialize(own, [infos[i] for i in here], chosen)

        async def deserialize(self, infos: Sequence[Any], args: Any = None) -> Any:
            places = [getattr(arg, "sharding", None) for arg in args or ()]
            here = [i for i, place in enumerate(places) if place is None or is_here(place)]
            read: list[jax.Array] = []
            if here:
                read = await super().deserialize([infos[i] for i in here], [args[i] for i in here])
            known = dict(zip(here, read, strict=True))
            return [known[i] if i in known else _elsewhere(arg) for i, arg in enumerate(args)]

    # Who has an array describes it, and all might write the one file of shardings at once; that
    # would serve to restore without saying where to, which is of no use for another plan.
    return JobArrays(
        primary_host=None, enable_write_sharding_file=False, use_replica_parallel=False
    )


def _of_the_job(value: jax.Array) -> jax.Array:
    lies = value.sharding
    if not isinstance(lies, NamedSharding) or _is_key(value.dtype):
        return value
    named: Any = JobSharding
    return assembled(value.shape, named(lies.mesh, lies.spec), pieces_of(value), value.dtype)


def _elsewhere(arg: Any) -> jax.Array:
    shape, dtype = tuple(arg.global_shape), arg.dtype
    if _is_key(dtype):
        raise InputError(
            f"orbax cannot restore the keys {arg.dtype}{list(shape)} in a process that holds none",
            help="keep jax.random.key_data(key) in the state, and wrap it in the step",
            code="SHARDC-283",
        )
    return nowhere_here(shape, arg.sharding, np.dtype(dtype))


def _is_key(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
