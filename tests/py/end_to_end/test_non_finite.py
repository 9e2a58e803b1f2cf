"""Sums over the batch that meet zeros, infinities and nan: results have these where jax.jit's do.

One step computes many forms of such sums, from a number of the state and from rows of the batch. It
is compiled once for each plan, and called with every number and every choice of rows.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from shardc.passes import plan_shardings
from tests.py.fuzz.non_finite import same
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

ROWS = 8  # two in each of four microbatches
Form = Callable[[Any, Any, Any], Any]


def _table(n: Any) -> Any:
    return 0.1 * n[:, None] * jnp.array([1.0, 0.5, -1.0])


def _carried(step: Callable[[Any, Any], Any]) -> Any:
    return lax.scan(lambda carry, i: (step(carry, i), None), 0.0, jnp.arange(1.0, 4.0))[0]


def _gradient(n: Any, scale: Any) -> Any:
    return jax.grad(lambda a: scale * jnp.sum(jnp.tanh(n * a)))(0.5)


def _narrow(n: Any) -> Any:
    return jnp.sum(n.astype(jnp.float16) * jnp.float16(9000), dtype=jnp.float16)


def _in_eight_bits(v: Any) -> Any:
    return jnp.clip(v, 5e-4, 1).astype(jnp.float8_e4m3fn).astype(jnp.float32)  # 5e-4 becomes 0


def _small(v: Any) -> Any:
    return jnp.clip(v, 1e-30, 1) * 1e-30 * 1e30 * 1e30  # 1e-60 becomes 0


# Of rows n [8] and u [8, 3] of the batch, and a number v of the state.
FORMS: dict[str, Form] = {
    "divided": lambda n, u, v: jnp.sum(n) / v,
    "divided and added": lambda n, u, v: jnp.sum(n) / v + 1e-4 * jnp.sum(jnp.tanh(u) ** 2),
    "multiplied and added": lambda n, u, v: jnp.sum(n) * v + 1e-4 * jnp.sum(jnp.tanh(u) ** 2),
    "contracted and added": lambda n, u, v: jnp.sum(u, 0) @ jnp.full(3, v) + jnp.sum(n) / 8,
    "divided by a root": lambda n, u, v: jnp.sum(n) / jnp.sqrt(v),
    "divided by a product": lambda n, u, v: jnp.sum(u, 0) / (v * jnp.arange(3)),
    "multiplied": lambda n, u, v: jnp.sum(n) * v,
    "multiplied by an inverse": lambda n, u, v: jnp.sum(n) * (1 / v),
    "multiplied by a root": lambda n, u, v: jnp.sum(u, 0) * lax.rsqrt(v),
    "multiplied by a power": lambda n, u, v: jnp.sum(n) * v**3,
    "multiplied by a constant": lambda n, u, v: jnp.sum(n) * 32,
    "multiplied by infinity": lambda n, u, v: jnp.sum(n) * jnp.inf,
    "raised": lambda n, u, v: jnp.sum(n) ** 2 * v,
    "selected": lambda n, u, v: jnp.where(v > 1, jnp.sum(n) * v, jnp.sum(n) / v),
    "selected elements": lambda n, u, v: jnp.where(jnp.arange(3) < 2, jnp.sum(u, 0), 0) / v,
    "contracted": lambda n, u, v: jnp.sum(u, 0) @ jnp.full(3, v),
    "contracted with one": lambda n, u, v: jnp.sum(u, 0) @ jnp.where(jnp.arange(3) == 1, v, 1),
    "outer product": lambda n, u, v: jnp.outer(jnp.sum(u, 0), jnp.full(2, v)),
    "two products": lambda n, u, v: (u.T @ jnp.tanh(u)) @ jnp.full((3, 3), v),
    "sum of two": lambda n, u, v: jnp.sum(n) * v + jnp.sum(u) / v,
    "moved": lambda n, u, v: (jnp.pad(jnp.sum(u, 0), 1)[::-1] * v)[jnp.array([3, 0, 1])],
    "summed again": lambda n, u, v: jnp.sum(jnp.sum(u, 0) / v),
    "carried sum": lambda n, u, v: _carried(lambda c, i: c + jnp.sum(n * i)) / v,
    "carried quotient": lambda n, u, v: _carried(lambda c, i: c + jnp.sum(n * i) / v),
    "carried product": lambda n, u, v: _carried(lambda c, i: c + jnp.sum(n) * (v * i)),
    "divided gradient": lambda n, u, v: _gradient(n, 1.0) / v,
    "loss scale": lambda n, u, v: _gradient(n, v) / v,
    "overflow": lambda n, u, v: jnp.isfinite(_gradient(n, v) / v),
    "mean of the marked": lambda n, u, v: jnp.sum(jnp.where(n > 0, n, 0)) / jnp.sum(n > 0),
    "bounded factor": lambda n, u, v: jnp.sum(n) * jnp.tanh(v),
    "clipped factor": lambda n, u, v: jnp.sum(u, 0) @ jnp.clip(jnp.full(3, v), -1, 1),
    "bounded divisor": lambda n, u, v: jnp.sum(n) / jnp.maximum(v, 1),
    "count": lambda n, u, v: jnp.sum(n) / jnp.maximum(jnp.sum(n > 0), 1),
    "largest": lambda n, u, v: jnp.max(n) * v,
    "smallest": lambda n, u, v: jnp.min(u, 0) / v,
    "logsumexp": lambda n, u, v: jax.nn.logsumexp(n) / v,
    "divided by eight bits": lambda n, u, v: jnp.sum(n) * (4e-4 / _in_eight_bits(v)),
    "divided by what is gone": lambda n, u, v: jnp.sum(n) * (0.4 / jnp.minimum(_small(v), 1)),
    "halves": lambda n, u, v: _narrow(n).astype(jnp.float32) / 2,
    "unscaled halves": lambda n, u, v: _narrow(n).astype(jnp.float32) / v,
}
NUMBERS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-30, 2.5, -0.5, 1.0, 3e38]


def _rows(**at: float) -> np.ndarray:
    """Zeros, but for some rows: `_0` is the first."""
    rows = np.zeros(ROWS, np.float32)
    for name, number in at.items():
        rows[int(name[1:])] = number
    return rows


CHOICES = {
    "none": _rows(),
    **{f"microbatch {i}": _rows(**{f"_{2 * i}": 1, f"_{2 * i + 1}": 0.5}) for i in range(4)},
    "all": np.linspace(0.5, 1.5, ROWS, dtype=np.float32),
    "opposite": _rows(_0=1, _7=-1),
    "large and nearly opposite": _rows(_0=2e37, _4=-1.9e37),
    "an infinity": _rows(_1=1, _5=np.inf),
    "two infinities": _rows(_0=np.inf, _6=np.inf),
    "opposite infinities": _rows(_0=np.inf, _6=-np.inf),
    "nan": _rows(_3=np.nan, _4=1),
    "subnormal": _rows(_2=1e-40, _5=-1e-40),
}
# As users have it: without LLVM's optimisations roundings differ, and opposite rows leave some.
OPTIMISED = {"xla_backend_optimization_level": 3}
PLANS = {  # stages, microbatches, seed of the choice of shardings
    "microbatches": (1, 4, None),
    "stages and devices": (2, 2, 0),
    "devices": (1, 1, 2),
}


def step(state: Any, x: Any, n: Any) -> Any:
    forms = {name: form(n, _table(n), state["v"]) for name, form in FORMS.items()}

    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(jnp.tanh(x @ w) @ w) - x) ** 2)

    value, gradient = jax.value_and_grad(loss)(state["w"])
    return {**state, "w": state["w"] - gradient}, value, forms


def arguments(number: float, rows: np.ndarray) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    w, x = (random.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (ROWS, 16)))
    return {"w": w, "v": np.float32(number)}, x, rows


Results = dict[tuple[int, str], dict[str, np.ndarray]]


def _results(run: Callable[..., Any]) -> Results:
    """What all forms give for each number and each choice of rows."""
    return {
        (i, choice): jax.device_get(run(*arguments(number, rows))[2])
        for i, number in enumerate(NUMBERS)
        for choice, rows in CHOICES.items()
    }


@pytest.fixture(scope="module")
def expected() -> Results:
    return _results(jax.jit(step, compiler_options=OPTIMISED))


@pytest.fixture(scope="module", params=PLANS)
def found(request: pytest.FixtureRequest) -> Results:
    stages, microbatches, seed = PLANS[request.param]
    planned = shardc.jit(
        step,
        cluster=CLUSTER,
        stages=stages,
        microbatches=microbatches,
        mesh=(2, 2),
        compiler_options=OPTIMISED,
    )
    solve = plan_shardings.solve_once if seed is None else random_solver(seed)
    with mock.patch.object(plan_shardings, "solve_once", solve):
        made = planned.lower(*arguments(1.0, CHOICES["all"])).plan()
    assert (made.plan.num_stages, made.plan.num_microbatches) == (stages, microbatches)
    return _results(made.compile())


@pytest.mark.parametrize("name", FORMS)
def test_infinities_and_nan_are_where_they_are(
    expected: Results, found: Results, name: str
) -> None:
    differing = [
        f"{NUMBERS[i]}, {choice}: {results[name]} is wanted, not {found[i, choice][name]}"
        for (i, choice), results in expected.items()
        if not same(results[name], found[i, choice][name])
    ]
    assert not differing, "\n".join(differing)
