"""Measures communication between devices, and copies to the host."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from shardc.calibrate.timer import Timer

AXIS = "group"
REST = "rest"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PAIR_BYTES = (1 << 12, 1 << 22)  # of the quick probe: mostly latency, mostly bandwidth
REPEATS = 5  # in a row: the same number in every process of a job


def measure_links(timer: Timer, devices: Sequence[jax.Device], quick: bool) -> None:
    """Adds the samples of collectives, "transfer" and "to_host".

    Groups of 2, 4, ... neighbours and of all devices, all groups at once; each kind from 4 KiB to
    16 MiB.
    """
    sizes = [1 << n for n in ((12, 18, 22) if quick else (10, 12, 14, 16, 18, 20, 22, 24))]
    for num_bytes in sizes:
        for n in group_sizes(len(devices)):
            for kind in KINDS:
                if timer.is_late:
                    return
                call = _collective(kind, devices, n, num_bytes)
                timer.add(kind, "float32", (n, num_bytes), call, REPEATS)
    for num_bytes in sizes:
        if timer.is_late:
            return
        if len(devices) > 1 and jax.process_count() == 1:
            timer.add("transfer", "float32", (num_bytes,), _transfer(devices, num_bytes))
        timer.add("to_host", "float32", (num_bytes,), _to_host(num_bytes))


def probe_pair(devices: Sequence[jax.Device], limit_s: float) -> dict[str, dict[int, float]]:
    """Seconds of an all-reduce of two devices and of a transfer between them, by kind and bytes.

    Args:
        limit_s: no larger size is tried after that.
    """
    timer = Timer(limit_s, repeats=3)
    for num_bytes in PAIR_BYTES:
        if timer.is_late:
            break
        together = _collective("all_reduce", devices, 2, num_bytes)
        timer.add("all_reduce", "float32", (num_bytes,), together, REPEATS)
        timer.add("transfer", "float32", (num_bytes,), _transfer(devices, num_bytes), REPEATS)
    found: dict[str, dict[int, float]] = {}
    for sample in timer.samples:
        found.setdefault(sample.kind, {})[sample.sizes[0]] = sample.seconds
    return found


def group_sizes(count: int) -> list[int]:
    """Powers of two above 1 that divide the number of devices, and that number itself."""
    powers = [1 << n for n in range(1, count.bit_length()) if count % (1 << n) == 0]
    return sorted({*powers, *([count] if count > 1 else [])})


def _collective(
    kind: str, devices: Sequence[jax.Device], n: int, num_bytes: int
) -> Callable[[], Any]:
    """A collective in groups of n neighbours; `num_bytes` counts its result on one device, for a
    reduce-scatter its operand."""
    mesh = Mesh(np.array(devices).reshape(-1, n), (REST, AXIS))
    elements = max(num_bytes // 4 // n * n, n)
    local = elements // n if kind == "all_gather" else elements
    spec = P((REST, AXIS))
    where = NamedSharding(mesh, spec)
    make = jax.jit(lambda: jnp.ones((mesh.size * local,), jnp.float32), out_shardings=where)
    x = make()

    def run(part: jax.Array) -> Any:
        match kind:
            case "all_gather":
                return jax.lax.all_gather(part, AXIS, tiled=True)
            case "reduce_scatter":
                return jax.lax.psum_scatter(part, AXIS, tiled=True)
            case "all_to_all":
                return jax.lax.all_to_all(part, AXIS, 0, 0, tiled=True)
            case _:
                return jax.lax.psum(part, AXIS)

    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    step = jax.jit(mapped)
    return lambda: step(x)


def _transfer(devices: Sequence[jax.Device], num_bytes: int) -> Callable[[], Any]:
    """A transfer from the first device to the last."""
    target = SingleDeviceSharding(devices[-1])
    x = jax.device_put(np.ones(num_bytes // 4, np.float32), devices[0])
    return lambda: jax.device_put(x, target)


def _to_host(num_bytes: int) -> Callable[[], Any]:
    x = jnp.ones(num_bytes // 4, jnp.float32)
    plus = jax.jit(lambda x: x + 1)
    return lambda: np.asarray(plus(x))  # a fresh array each time: JAX caches host copies
