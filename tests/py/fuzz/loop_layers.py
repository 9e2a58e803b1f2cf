"""Layers that loop: over rows with narrow counters, over time per row, three loops inside each
other."""

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.py.fuzz.layers import WIDTH, Layer


def over_rows(random: Random, rows: int) -> Layer:
    """One row of the batch at a time, by a counter that may be too narrow."""
    kind = random.choice(["int32", "int32", "uint8", "int8", "int16", "uint4"])
    what = random.choice(["sum", "rows", "both"])
    form = random.choice(["scan", "fori"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        # XLA drops updates at an int8 in a longer dim, as the gradient of such a read has them.
        lost = form == "scan" and kind == "int8" and rows > 128
        read = lax.stop_gradient(h) if lost else h

        def one(i: Any) -> Any:
            return jnp.tanh(lax.dynamic_index_in_dim(read, i, 0, keepdims=False) @ w[0])

        counters = lax.iota(jnp.int32, rows).astype(kind)
        if form == "scan":
            total, each = lax.scan(
                lambda total, i: (total + jnp.sum(one(i)), one(i)), jnp.zeros((), h.dtype), counters
            )
        else:
            total, each = lax.fori_loop(
                0,
                rows,
                lambda i, c: (c[0] + jnp.sum(one(i)), c[1].at[i].set(one(i))),
                (jnp.zeros((), h.dtype), jnp.zeros_like(h)),
            )
        if what == "sum":
            return h, total / rows
        return (h + each, total / rows) if what == "both" else h + each

    return Layer(f"{form} over rows by {kind}, {what}", 1, apply)


def carried_per_row(random: Random, rows: int) -> Layer:
    """Each row carries its own state over time, and updates it: vectors or whole weights."""
    ticks = random.choice([2, 3])
    carried = random.choice(["vector", "matrix", "matrix and count", "buffer"])
    mapped = random.random() < 0.5

    def row(h: Any, w: Any) -> Any:
        def tick(c: Any, t: Any) -> Any:
            if carried == "vector":
                c = jnp.tanh(c @ w[0] + h)
                return c, jnp.sum(c)
            if carried == "buffer":
                c = c.at[t].set(jnp.tanh(c[t - 1] @ w[0] + h))
                return c, jnp.sum(c)
            fast, n = c
            out = jnp.tanh(h @ fast)
            fast = fast - 0.1 * jnp.outer(out, h) / (1 + n)
            return (fast, n + (1 if "count" in carried else 0)), jnp.sum(out)

        start = {"vector": h, "buffer": jnp.zeros((ticks, WIDTH), h.dtype)}.get(carried)
        if start is None:
            start = (w[0], jnp.zeros((), h.dtype))
        end, outs = lax.scan(tick, start, jnp.arange(ticks))
        last = end if carried == "vector" else end[-1] if carried == "buffer" else h @ end[0]
        return last + jnp.sum(outs)

    def batched(h: Any, w: Any) -> Any:
        """The same without vmap: the batch stands inside the carry."""

        def tick(c: Any, t: Any) -> Any:
            c = jnp.tanh(c @ w[0] + h)
            return c, jnp.sum(c, 1)

        end, outs = lax.scan(tick, h, jnp.arange(ticks))
        return end + jnp.sum(outs, 0)[:, None]

    def apply(h: Any, w: Any, y: Any) -> Any:
        if carried == "vector" and not mapped:
            return batched(h, w)
        return jax.vmap(row, in_axes=(0, None))(h, w)

    return Layer(f"{ticks} ticks carrying {carried}, mapped {mapped}", 1, apply)


def updated_by_rows(random: Random, rows: int) -> Layer:
    """A scan over the batch that carries what every row changes: no microbatches in it."""
    stop = random.random() < 0.5

    def apply(h: Any, w: Any, y: Any) -> Any:
        def one(fast: Any, z: Any) -> Any:
            out = jnp.tanh(z @ fast)
            return fast - 0.1 * jnp.outer(out, z), out

        source = lax.stop_gradient(h) if stop else h
        fast, outs = lax.scan(one, w[0], source)
        return h + outs, jnp.sum(fast**2) / rows

    return Layer(f"scan that updates weights by rows, stop {stop}", 1, apply)


def three_loops(random: Random, rows: int) -> Layer:
    """Loops over layers, time and steps of a solver, one inside the other, per row or not."""
    inner = random.choice(["scan", "fori", "while"])
    mapped = random.random() < 0.5
    counts = [random.choice([2, 3]) for _ in range(3)]

    def apply(h: Any, w: Any, y: Any) -> Any:
        stacked = jnp.stack([jnp.asarray(each) for each in (w[0], w[1], w[0])[: counts[0]]])

        def solve(z: Any, weight: Any) -> Any:
            def improve(v: Any) -> Any:
                return jnp.tanh(v @ weight) / 2 + z / 2

            if inner == "scan":
                return lax.scan(lambda v, _: (improve(v), None), z, None, length=counts[2])[0]
            if inner == "fori":
                return lax.fori_loop(0, counts[2], lambda _, v: improve(v), z)
            fixed = lax.stop_gradient((z, weight))
            return (
                z
                + lax.while_loop(
                    lambda c: (c[0] < counts[2]) & (jnp.sum(c[1] ** 2) < 50),
                    lambda c: (c[0] + 1, jnp.tanh(c[1] @ fixed[1]) + fixed[0]),
                    (0, fixed[0]),
                )[1]
            )

        def layers(z: Any) -> Any:
            def layer(z: Any, weight: Any) -> Any:
                z, outs = lax.scan(
                    lambda v, _: (solve(v, weight), jnp.sum(v)), z, None, length=counts[1]
                )
                return z, outs

            z, outs = lax.scan(layer, z, stacked)
            return z + jnp.sum(outs) / 10 if mapped else z

        return jax.vmap(layers)(h) if mapped else layers(h)

    return Layer(f"three loops {counts}, inner {inner}, mapped {mapped}", 2, apply)


def tree_search(random: Random, rows: int) -> Layer:
    """Each row searches by itself: a loop over simulations that walks down and back up."""
    simulations, depth = random.choice([2, 3]), random.choice([2, 3])

    def search(root: Any) -> Any:
        def simulate(k: Any, tree: Any) -> Any:
            values, visits = tree

            def down(c: Any) -> Any:
                level, node = c
                left = values[(2 * node + 1) % 7] + 1 / (1 + visits[(2 * node + 1) % 7])
                right = values[(2 * node + 2) % 7] + 1 / (1 + visits[(2 * node + 2) % 7])
                return level + 1, (2 * node + jnp.where(left >= right, 1, 2)) % 7

            _, leaf = lax.while_loop(lambda c: c[0] < depth, down, (0, k % 2))

            def up(_: Any, c: Any) -> Any:
                node, values, visits = c
                values = values.at[node].add(jnp.tanh(root[node % WIDTH]))
                return (node - 1) // 2 % 7, values, visits.at[node].add(1)

            _, values, visits = lax.fori_loop(0, depth, up, (leaf, values, visits))
            return values, visits

        start = jnp.zeros(7, root.dtype), jnp.zeros(7, jnp.int32)
        values, visits = lax.fori_loop(0, simulations, simulate, start)
        return values[:WIDTH] / (1 + visits[:WIDTH])

    def apply(h: Any, w: Any, y: Any) -> Any:
        return jnp.tanh(h @ w[0]) + jax.vmap(search)(lax.stop_gradient(h))

    return Layer(f"tree search of {simulations}, depth {depth}", 1, apply)
