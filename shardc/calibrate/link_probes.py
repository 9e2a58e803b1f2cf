"""Measures communication between devices, and copies to the host."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardc.calibrate.timer import Timer
from shardc.runtime.processes.arrays import is_here, put
from shardc.runtime.processes.peers import between_processes
from shardc.runtime.transfers import Transfers
from shardc.runtime.transport import InProcess, Move

AXIS = "group"
REST = "rest"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PAIR_BYTES = (1 << 12, 1 << 22)  # of the quick probe: mostly latency, mostly bandwidth
BETWEEN = "between"
REPEATS = 5  # in a row
SIDE = 512  # of the product before a collective: on a CPU it outlasts a slice of the scheduler


class Joined(NamedTuple):
    """A level of links between the devices that are measured.

    Attributes:
        name: of the level.
        size: number of units that it joins.
        stride: devices of one unit.
    """

    name: str
    size: int
    stride: int


def measure_links(
    timer: Timer, devices: Sequence[jax.Device], levels: Sequence[Joined], quick: bool
) -> None:
    """Adds the samples of collectives, "transfer" and "to_host".

    At each level, groups of 2, 4, ... neighbours and of all units, all groups at once, so that
    devices of one unit share its links; each kind from 1 KiB to 16 MiB. Once the time limit is
    reached, only the smallest collectives.
    """
    sizes = [1 << n for n in ((12, 18, 22) if quick else (10, 12, 14, 16, 18, 20, 22, 24))]
    for num_bytes, level in itertools.product(sizes, levels):
        for n in group_sizes(level.size):
            if num_bytes > sizes[0] and timer.is_late:
                return
            _time_collectives(timer, KINDS, devices, level, n, num_bytes)
    for num_bytes in sizes:
        if timer.is_late:
            return
        for level in levels:
            ends = devices[0], devices[(level.size - 1) * level.stride]
            call = _transfer(*ends, num_bytes)
            timer.add("transfer", "float32", (num_bytes,), call, REPEATS, level.name)
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
        pair = Joined("", 2, 1)
        _time_collectives(timer, ("all_reduce",), devices, pair, 2, num_bytes)
        sent = _transfer(devices[0], devices[-1], num_bytes)
        timer.add("transfer", "float32", (num_bytes,), sent, REPEATS)
    found: dict[str, dict[int, float]] = {}
    for sample in timer.samples:
        found.setdefault(sample.kind, {})[sample.sizes[-1]] = sample.seconds
    found.pop(BETWEEN, None)
    return found


def group_sizes(count: int) -> list[int]:
    """Powers of two above 1 that divide the number of devices, and that number itself."""
    powers = [1 << n for n in range(1, count.bit_length()) if count % (1 << n) == 0]
    return sorted({*powers, *([count] if count > 1 else [])})


def groups_of(devices: Sequence[Any], n: int, stride: int) -> np.ndarray:
    """[group, n]: groups of n devices, each `stride` behind the one before."""
    return np.array(devices).reshape(-1, n, stride).swapaxes(1, 2).reshape(-1, n)


def _time_collectives(
    timer: Timer,
    kinds: Sequence[str],
    devices: Sequence[jax.Device],
    level: Joined,
    n: int,
    num_bytes: int,
) -> None:
    """Adds a sample of each kind: a program with collectives, less the same without them."""
    between_s = 0.0
    for kind in (BETWEEN, *kinds):
        taken_s = timer.add(
            kind,
            "float32",
            (n, num_bytes),
            _collective(kind, devices, n, num_bytes, level.stride),
            count=1,
            level=level.name,
            inside=REPEATS,
            less_s=between_s,
        )
        if kind == BETWEEN:
            between_s = taken_s


def _collective(
    kind: str, devices: Sequence[jax.Device], n: int, num_bytes: int, stride: int
) -> Callable[[], Any]:
    """A program of REPEATS collectives with a product before each, as in a step.

    Where threads that carry messages share the cores with those that compute, a collective takes
    longer than in a program of nothing else. In groups of n neighbours, or of every `stride`-th
    device; `num_bytes` counts the result on one device, for a reduce-scatter the operand.
    """
    mesh = Mesh(groups_of(devices, n, stride), (REST, AXIS))
    local = max(num_bytes // 4 // n * n, n)
    spec = P((REST, AXIS))
    where = NamedSharding(mesh, spec)
    make = jax.jit(lambda: jnp.ones((mesh.size * local,), jnp.float32), out_shardings=where)
    x = make()

    def once(whole: jax.Array) -> Any:
        match kind:
            case "all_gather":
                return jax.lax.all_gather(whole[: local // n], AXIS, tiled=True)
            case "reduce_scatter":
                return jnp.tile(jax.lax.psum_scatter(whole, AXIS, tiled=True) / n, n)
            case "all_to_all":
                return jax.lax.all_to_all(whole, AXIS, 0, 0, tiled=True)
            case "all_reduce":
                return jax.lax.psum(whole, AXIS) / n
            case _:
                return whole

    def run(whole: jax.Array) -> Any:
        square = jnp.ones((SIDE, SIDE), jnp.float32)
        for _ in range(REPEATS):
            square = square * whole[0] @ square / SIDE
            whole = once(whole * square[0, 0])  # all of it stays 1
        return whole

    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    step = jax.jit(mapped)
    return lambda: step(x)


def _transfer(first: jax.Device, last: jax.Device, num_bytes: int) -> Callable[[], Any]:
    """A transfer between two devices, as between stages; in a job, what this process does of it."""
    source, target = (
        NamedSharding(Mesh(np.array([device]), (AXIS,)), P()) for device in (first, last)
    )
    if not is_here(source) and not is_here(target):
        return tuple
    shape = (num_bytes // 4,)
    local = InProcess(Transfers())
    transport = between_processes(local) or local
    route = transport.route([Move(source, target, shape, "float32")])
    sent = [put(np.ones(shape, np.float32), source)] if is_here(source) else []

    def run() -> Any:
        if sent:
            route.send(sent)
        return route.receive() if is_here(target) else sent

    return run


def _to_host(num_bytes: int) -> Callable[[], Any]:
    x = jnp.ones(num_bytes // 4, jnp.float32)
    plus = jax.jit(lambda x: x + 1)
    return lambda: np.asarray(plus(x))  # a fresh array each time: JAX caches host copies
