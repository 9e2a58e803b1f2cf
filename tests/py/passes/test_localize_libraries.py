"""Calls of LAPACK and of approximate top-k work on parts of what they map over."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc import compiler
from shardc.analysis.shardings.strategies import Strategy
from shardc.ir.context import parse
from shardc.ir.walk import main_function, ops
from tests.py.passes.on_devices import run_local, run_whole
from tests.py.passes.one_op import MESH, TARGET, annotated, localized, strategies, target_of

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(4)),
    "eigh": lambda x: jnp.linalg.eigvalsh(x + x.mT),
    "lu": lambda x: jax.scipy.linalg.lu_factor(x)[0],
    "qr": lambda x: jnp.linalg.qr(x, mode="r"),
    "svd": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "triangular_solve": lambda x: jax.lax.linalg.triangular_solve(x, x),
    "triangular_solve_left": lambda x: jax.lax.linalg.triangular_solve(x, x, left_side=True),
    "triangular_solve_one": lambda x: jax.lax.linalg.triangular_solve(x[0], x[1]),
    "approx_max_k": lambda x: jax.lax.approx_max_k(x, 2, reduction_dimension=1),
    "approx_max_k_aggregated": lambda x: jax.lax.approx_min_k(x, 1, reduction_dimension=0),
}
# Dims that stay whole, by operand, if not the last two of each.
WHOLE: dict[str, list[set[int]]] = {
    "approx_max_k": [{1}],
    "approx_max_k_aggregated": [{0}],
    "triangular_solve": [{1, 2}, {2}],
    "triangular_solve_left": [{1, 2}, {1}],
    "triangular_solve_one": [{0, 1}, {1}],
}


@pytest.fixture(autouse=True)
def with_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def calls(name: str, argument: np.ndarray) -> list[str]:
    """The program once for each call of a library in it, which is marked as the target."""
    text = jax.jit(FUNCTIONS[name]).lower(argument).as_text()
    module = parse(text)
    compiler.prepare(module)
    found = []
    for op in ops(main_function(module.operation)):
        if op.name == "stablehlo.custom_call":
            with module.context:
                op.attributes[TARGET] = ir.UnitAttr.get()
            found.append(str(module))
            del op.attributes[TARGET]
    return found


def planned(text: str) -> list[Strategy]:
    module = parse(text)
    return strategies(*target_of(module))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_make_the_whole(name: str) -> None:
    argument = np.random.default_rng(0).normal(size=(4, 4, 4))
    texts = calls(name, argument)
    assert texts
    for text in texts:
        found = planned(text)
        assert len(found) > 3
        (expected, *_) = run_whole(parse(text), [argument], xla=True)
        for strategy in found:
            local = localized(annotated(text, strategy))
            (got, *_) = run_local(local, MESH, [argument], xla=True)
            np.testing.assert_allclose(got, expected, rtol=1e-9, err_msg=str(strategy))


@pytest.mark.slow
def test_what_a_library_works_on_stays_whole() -> None:
    for name in FUNCTIONS:
        argument = np.zeros((4, 4, 4))
        whole = WHOLE.get(name, [{1, 2}])
        for text in calls(name, argument):
            for strategy in planned(text):
                for sharding, kept in zip(strategy.operands, itertools.cycle(whole), strict=False):
                    assert not kept.intersection(d for d, axes in enumerate(sharding.dims) if axes)
