"""Lets orbax save and restore the state of a pipeline, in one process or in several.

orbax expects every array in every process: it refuses an array whose devices all belong to this
process (it might be a local one) and fails if a process holds no piece of an array. The state of a
pipeline has many of both. Here each process writes and reads its own pieces; files, commits and
metadata remain orbax's. Large arrays are saved in chunks and read one chunk at a time.
"""

import dataclasses
import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from shardc.errors import ClusterError, InputError
from shardc.runtime.processes.arrays import assembled, is_here, nowhere_here, pieces_of
from shardc.runtime.processes.job import this_job
from shardc.runtime.processes.read_chunks import read_by_chunks

CHUNK_BYTES = 1 << 23  # of saved arrays; larger arrays are read one chunk at a time
GROUP_BYTES = 1 << 25  # of smaller arrays, which are read together
SAID = 200  # characters of a file-system error; its end has the reason


def use_orbax() -> None:
    """Lets orbax save and restore the state of any plan; every process calls it, first.

    Replaces orbax's handler of `jax.Array`. A process that restores a large array holds at most
    two chunks besides the pieces that it keeps; chunks saved by this handler have at most 8 MiB,
    unless `SaveArgs` say otherwise.

    Raises:
        ImportError: orbax-checkpoint is not installed.
    """
    handlers: Any = import_module("orbax.checkpoint").type_handlers
    handlers.register_type_handler(jax.Array, _handler(handlers), override=True)


class JobSharding(NamedSharding):
    """A sharding of an array of the whole job, even if all its devices are this process's."""

    @property
    def is_fully_addressable(self) -> bool:
        """Always False: the other processes pass the same array, with their own pieces or none."""
        return False


def _handler(handlers: Any) -> Any:
    store: Any = import_module("tensorstore")

    class JobArrays(handlers.ArrayHandler):  # type: ignore[misc]  # orbax is not a dependency
        """orbax's handler, applied to the arrays that this process has pieces of."""

        async def serialize(
            self, values: Sequence[jax.Array], infos: Sequence[Any], args: Any = None
        ) -> Any:
            here = [i for i, value in enumerate(values) if is_here(value.sharding)]
            if not here:
                return []
            own = [_of_the_job(values[i]) for i in here]
            chosen = [handlers.SaveArgs() if args is None else args[i] for i in here]
            commits = await super().serialize(
                own, [infos[i] for i in here], [_in_chunks(arg) for arg in chosen]
            )
            return commits if jax.process_count() == 1 else [_Commit(each) for each in commits]

        async def deserialize(self, infos: Sequence[Any], args: Any = None) -> Any:
            if args is None:
                return await super().deserialize(infos)
            known: dict[int, jax.Array] = {}
            rest = []
            for i, (info, arg) in enumerate(zip(infos, args, strict=True)):
                place = getattr(arg, "sharding", None)
                if place is not None and not is_here(place):
                    known[i] = _elsewhere(arg)
                elif not _is_large(arg) or (array := await self._by_chunks(info, arg)) is None:
                    rest.append(i)
                else:
                    known[i] = array
            for group in _groups(rest, [_bytes_here(arg) for arg in args]):
                own, asked = [infos[i] for i in group], [args[i] for i in group]
                known |= zip(group, await super().deserialize(own, asked), strict=True)
            return [known[i] for i in range(len(known))]

        async def _by_chunks(self, info: Any, arg: Any) -> jax.Array | None:
            """None if another shape was saved: orbax then pads, or reports the error."""
            spec = handlers.get_json_tspec_read(info, use_ocdbt=info.is_ocdbt_checkpoint)
            found = await store.open(store.Spec(spec), open=True, context=info.ts_context)
            if tuple(found.shape) != tuple(arg.global_shape):
                return None
            return await read_by_chunks(found, arg.sharding, np.dtype(arg.dtype))

    if jax.process_count() == 1:
        # orbax's own handler stores there the kind of an array of keys.
        store_of_kinds = getattr(
            handlers.get_type_handler(jax.Array), "_array_metadata_store", None
        )
        return JobArrays(array_metadata_store=store_of_kinds)
    # Every owner of an array describes it, and all of them might write the single file of shardings
    # at once. That file allows a restore without a target, which is useless for another plan.
    return JobArrays(
        primary_host=None, enable_write_sharding_file=False, use_replica_parallel=False
    )


class _Commit:
    """The future that orbax waits for in the background while saving; a failure ends the job.

    Otherwise orbax lets the other processes wait for this one, for ten minutes by default.
    """

    def __init__(self, commit: Any) -> None:
        self._commit = commit

    def result(self, timeout: float | None = None) -> Any:
        """Waits; raises the commit's own timeout error after `timeout` seconds."""
        try:
            return self._commit.result(timeout)
        except TimeoutError:
            raise
        except Exception as error:  # any error of a file system
            job = this_job()
            said = str(error).splitlines()[0][-SAID:].lstrip(": ")
            told = ClusterError(
                f"rank {job.rank} cannot write its part of a checkpoint: {said}",
                help="make room where checkpoints are written; completed checkpoints are intact",
                code="SHARDC-284",
            )
            job.watch.fail(str(told))
            raise told from error

    def cancel(self) -> Any:
        """Like orbax's."""
        return self._commit.cancel()


def _in_chunks(arg: Any) -> Any:
    if arg.chunk_byte_size is not None:
        return arg
    return dataclasses.replace(arg, chunk_byte_size=CHUNK_BYTES)


def _is_large(arg: Any) -> bool:
    """Whether an array of numbers with a known sharding exceeds a chunk in this process."""
    place = getattr(arg, "sharding", None)
    if type(place) is not NamedSharding or _bytes_here(arg) <= CHUNK_BYTES or _is_key(arg.dtype):
        return False
    own: Any = place.addressable_devices
    return all(device.default_memory().kind == place.memory_kind for device in own)


def _bytes_here(arg: Any) -> int:
    """Bytes of an array that this process will hold, as far as `arg` tells."""
    place, shape, dtype = (getattr(arg, n, None) for n in ("sharding", "global_shape", "dtype"))
    if not isinstance(place, NamedSharding) or shape is None or dtype is None:
        return 0
    piece: int = math.prod(place.shard_shape(tuple(shape))) * dtype.itemsize
    return piece * len(place.addressable_devices)


def _groups(numbers: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Groups consecutive numbers whose sizes add up to `GROUP_BYTES`; at least one per group."""
    groups: list[list[int]] = []
    filled = 0
    for number in numbers:
        if not groups or filled + sizes[number] > GROUP_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += sizes[number]
    return groups


def _of_the_job(value: jax.Array) -> jax.Array:
    sharding = value.sharding
    if not isinstance(sharding, NamedSharding) or _is_key(value.dtype) or jax.process_count() == 1:
        return value
    named: Any = JobSharding
    place = named(sharding.mesh, sharding.spec, memory_kind=sharding.memory_kind)
    return assembled(value.shape, place, pieces_of(value), value.dtype)


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
