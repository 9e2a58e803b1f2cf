"""Compute measurements of a device: products, memory-bound kernels, kernel launches, calls.

All devices run the same work at once, as in a step: virtual devices share cores, and devices of a
node share power. GPUs finish small work sooner than the host can call the next program, so they get
larger work than CPU devices do, the largest first.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardc.calibrate.timer import Sample, Timer

AXIS = "devices"
LONGEST_S = 0.2  # of one product: larger ones are skipped
# By whether devices are CPUs, and `quick`: sides of products, and log2 of the bytes that a kernel
# reads, for GPUs up to much more than any cache holds.
SIZES: Mapping[tuple[bool, bool], tuple[Sequence[int], Sequence[int]]] = {
    (True, False): ((128, 256, 512, 1024, 2048, 4096, 8192), (18, 20, 22, 24, 26)),
    (True, True): ((128, 512, 1024), (18, 20, 22, 24)),
    (False, False): ((16384, 8192, 4096, 2048), (30, 29, 28, 27, 26, 25, 24)),
    (False, True): ((16384, 4096), (30, 27, 24)),
}
FLAT = 512  # the least side whose flat, narrow and shallow products are measured
CALLS = 3  # less work than the host's time for these many calls says nothing of a device
KERNELS = (8, 72)


def measure_compute(timer: Timer, devices: Sequence[jax.Device], quick: bool) -> None:
    """Adds samples of the kinds "launch", "call", "memory" and "product". Once the time limit is
    reached, only the first of each kind."""
    sides, log2_bytes = SIZES[devices[0].platform == "cpu", quick]
    mesh = Mesh(np.array(devices), (AXIS,))
    small = _values(mesh, (8, 8), "float32")
    for count in KERNELS:
        timer.add(
            "launch", "float32", (count,), _bound(_on_each(mesh, _chain(count)), small, small)
        )
    many = [_values(mesh, (8,), "float32") for _ in range(16)]
    timer.add("call", "float32", (len(many),), _bound(_on_each(mesh, _first), *many))
    for n in log2_bytes:
        x = _values(mesh, (1 << n - 2,), "float32")
        timer.add("memory", "float32", (2 << n,), _bound(_on_each(mesh, _plus), x))
        if timer.is_late:
            break
    _measure_products(timer, mesh, dtypes(devices), sides, quick)


def of_devices(samples: Sequence[Sample]) -> list[Sample]:
    """Without products and kernels of GPUs that take no longer than CALLS calls, which measure the
    host. Of each kind and dtype at least the longest one stays."""
    call_s = max((each.seconds for each in samples if each.kind == "call"), default=0.0)
    longest: dict[tuple[str, str], float] = {}
    for each in samples:
        if each.kind in ("product", "memory"):
            kind = each.kind, each.dtype
            longest[kind] = max(longest.get(kind, 0.0), each.seconds)
    return [
        each
        for each in samples
        if each.seconds >= min(longest.get((each.kind, each.dtype), 0.0), CALLS * call_s)
    ]


def dtypes(devices: Sequence[jax.Device]) -> tuple[str, ...]:
    """The dtypes whose products are measured: those available on these devices."""
    found = ["float32", "bfloat16"]
    if devices[0].platform != "cpu":
        found.append("float16")
    if jax.config.read("jax_enable_x64"):
        found.append("float64")
    return tuple(found)


def _measure_products(
    timer: Timer, mesh: Mesh, of_dtypes: Sequence[str], sides: Sequence[int], quick: bool
) -> None:
    """Square products, and flat, narrow and shallow ones, of each dtype in turn."""
    left, grow = list(of_dtypes), sides[0] < sides[-1]
    for sizes in _product_sizes(sides, quick):
        rows, columns, depth = sizes
        for dtype in tuple(left):
            lhs, rhs = _values(mesh, (rows, depth), dtype), _values(mesh, (depth, columns), dtype)
            taken = timer.add("product", dtype, sizes, _bound(_on_each(mesh, jnp.matmul), lhs, rhs))
            if grow and taken > LONGEST_S:
                left.remove(dtype)
        if timer.is_late:
            return


def _product_sizes(sides: Sequence[int], quick: bool) -> Iterator[tuple[int, int, int]]:
    for n in sides:
        yield n, n, n
        if n >= FLAT:
            yield 64, n, n
            yield n, n, 64
            if not quick:
                yield n, 64, n
                yield 256, n, n


def _on_each(mesh: Mesh, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` applied on each device to its parts, without their first dim of size 1."""

    def local(*parts: jax.Array) -> Any:
        return function(*(part[0] for part in parts))[None]

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False)
    return jax.jit(mapped)


def _values(mesh: Mesh, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """An array with this shape on each device, of values between -1 and 1: with nothing but ones
    some devices draw less power, and run faster."""

    def make() -> jax.Array:
        order = jax.lax.iota(jnp.float32, math.prod(shape))
        one = jnp.sin(order).astype(jnp.dtype(dtype)).reshape(shape)
        return jnp.broadcast_to(one, (mesh.size, *shape))

    found: jax.Array = jax.jit(make, out_shardings=NamedSharding(mesh, P(AXIS)))()
    return found


def _bound(function: Callable[..., Any], *arguments: jax.Array) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _chain(count: int) -> Callable[..., Any]:
    """`count` kernels, each of which depends on the previous one."""

    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(count):
            x = x @ w
        return x

    return run


def _first(*parts: jax.Array) -> jax.Array:
    return parts[0]


def _plus(x: jax.Array) -> jax.Array:
    return x * 2 + 1
