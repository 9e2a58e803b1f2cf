"""Compute measurements of a device: products, memory-bound kernels, kernel launches, calls.

All devices run the same work at once, as in a step: virtual devices share cores, and devices of a
node share power.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardc.calibrate.timer import Timer

AXIS = "devices"
LONGEST_S = 0.2  # of one product: larger ones are skipped
KERNELS = (8, 72)


def measure_compute(timer: Timer, devices: Sequence[jax.Device], quick: bool) -> None:
    """Adds samples of the kinds "launch", "call", "memory" and "product". Once the time limit is
    reached, only the smallest of each kind."""
    mesh = Mesh(np.array(devices), (AXIS,))
    small = _values(mesh, (8, 8), "float32")
    for count in KERNELS:
        timer.add(
            "launch", "float32", (count,), _bound(_on_each(mesh, _chain(count)), small, small)
        )
    many = [_values(mesh, (8,), "float32") for _ in range(16)]
    timer.add("call", "float32", (len(many),), _bound(_on_each(mesh, _first), *many))
    for num_bytes in (1 << n for n in range(18, 27 if not quick else 25, 2)):
        x = _values(mesh, (num_bytes // 4,), "float32")
        timer.add("memory", "float32", (2 * num_bytes,), _bound(_on_each(mesh, _plus), x))
        if timer.is_late:
            break
    for dtype in dtypes(devices):
        _measure_products(timer, mesh, dtype, quick)


def dtypes(devices: Sequence[jax.Device]) -> tuple[str, ...]:
    """The dtypes whose products are measured: those available on these devices."""
    found = ["float32", "bfloat16"]
    if devices[0].platform != "cpu":
        found.append("float16")
    if jax.config.read("jax_enable_x64"):
        found.append("float64")
    return tuple(found)


def _measure_products(timer: Timer, mesh: Mesh, dtype: str, quick: bool) -> None:
    """Products from small to large: square ones, and flat, narrow and shallow ones."""
    for sizes in _product_sizes(quick):
        rows, columns, depth = sizes
        lhs, rhs = _values(mesh, (rows, depth), dtype), _values(mesh, (depth, columns), dtype)
        taken = timer.add("product", dtype, sizes, _bound(_on_each(mesh, jnp.matmul), lhs, rhs))
        if taken > LONGEST_S or timer.is_late:
            return


def _product_sizes(quick: bool) -> Iterator[tuple[int, int, int]]:
    for n in (128, 512, 1024) if quick else (128, 256, 512, 1024, 2048, 4096, 8192):
        yield n, n, n
        if n >= 512:
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
    """An array of ones with this shape on each device."""
    whole = NamedSharding(mesh, P(AXIS))
    make = jax.jit(lambda: jnp.ones((mesh.size, *shape), jnp.dtype(dtype)), out_shardings=whole)
    found: jax.Array = make()
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
