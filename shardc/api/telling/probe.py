"""A small computation that no other process takes part in: how fast is this one alone?"""

import statistics
import time

import jax
import jax.numpy as jnp

SIZE, PRODUCTS = 256, 8


class Probe:
    """Times the same products on each device of this process.

    Programs whose mesh spans several processes take as long as the slowest of them; a probe does
    not.
    """

    def __init__(self) -> None:
        def products(x: jax.Array) -> jax.Array:
            for _ in range(PRODUCTS):
                x = jnp.tanh(x @ x)
            return x

        self._inputs = [
            jax.device_put(jnp.full((SIZE, SIZE), 1e-3, jnp.float32), device)
            for device in jax.local_devices()
        ]
        self._call = jax.jit(products)
        jax.block_until_ready([self._call(each) for each in self._inputs])
        self._seconds: list[list[float]] = [[] for _ in self._inputs]

    def run(self, times: int = 1) -> None:
        """Runs on each device in turn, and waits."""
        for _ in range(times):
            for each, seconds in zip(self._inputs, self._seconds, strict=True):
                start_s = time.perf_counter()
                jax.block_until_ready(self._call(each))
                seconds.append(time.perf_counter() - start_s)

    def median_s(self) -> float:
        """Of the runs on the slowest device."""
        return max(map(statistics.median, self._seconds))
