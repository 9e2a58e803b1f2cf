"""Programs too large without calls: what repeats stays a function, and is split like an op."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

import shardc
from shardc.analysis.calls.call_graph import CallGraph
from shardc.analysis.calls.repeated_functions import repeated_functions
from shardc.ir.calls import facts_of, functions_by_name
from shardc.ir.context import make_context
from shardc.passes import inline_calls, plan_shardings
from shardc.passes.summarize_calls import SummarizeCalls
from tests.py.fuzz.check import check_shardings
from tests.py.fuzz.draft import Source
from tests.py.fuzz.generate import random_source
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

LAYERS, WIDTH, ROWS = 4, 8, 16


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The functions that were kept, in modules that may have few ops."""
    found: set[str] = set()

    def keep(graph: CallGraph, most_ops: int) -> set[str]:
        found.update(names := repeated_functions(graph, 1))
        return names

    monkeypatch.setattr(inline_calls, "repeated_functions", keep)
    yield found
    assert found, "everything was inlined: the test tests nothing"


@jax.jit
def layer(w: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(x @ w + b)


@jax.jit
def norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def step(p: Any, x: Any, y: Any) -> Any:
    def loss(p: Any) -> Any:
        h = x
        for w, b in p:
            h = h + layer(w, b, norm(h))
        return jnp.mean((h - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda a, g: a - 0.1 * g, p, gradient), value


def arguments() -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    p = [
        (random.standard_normal((WIDTH, WIDTH)), random.standard_normal(WIDTH))
        for _ in range(LAYERS)
    ]
    return p, *random.standard_normal((2, ROWS, WIDTH))


@pytest.mark.parametrize(("stages", "microbatches", "seed"), [(1, 1, 0), (1, 4, 1), (2, 4, 3)])
def test_training(kept: set[str], stages: int, microbatches: int, seed: int) -> None:
    with jax.enable_x64(True), mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
        args = arguments()
        compiled = shardc.jit(
            step, stages=stages, microbatches=microbatches, cluster=CLUSTER, mesh=(2, 2)
        ).lower(*args)
        plan = compiled.plan().plan
        assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches)
        assert any("calls is planned as one op" in str(note) for note in plan.notes)
        got = compiled.compile()(*args)
        wanted = jax.jit(step)(*args)
        for have, want in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


class Twice(Source):
    """A program that calls the function of its source twice, with other numbers."""

    def function(self) -> Callable[..., Any]:
        inner = jax.jit(super().function())

        def outer(*args: Any) -> Any:
            doubled = [2 * a if a.dtype.kind == "f" else a for a in args]
            return jax.tree.leaves((inner(*args), inner(*doubled)))

        return outer


@pytest.mark.parametrize("seed", range(8))
def test_any_strategies_of_any_function(kept: set[str], seed: int) -> None:
    with jax.enable_x64(True):
        source = random_source(Random(seed), 3 + seed % 6)
    check_shardings(Twice(source.arguments, source.lines, source.results), seed)


def test_long_chains_of_calls() -> None:
    """Functions that each call the next one, deeper than Python recurses."""
    depth, type_ = 1_200, "tensor<4xf32>"

    def call_of(number: int) -> str:
        return f"%1 = func.call @f{number}(%0) : ({type_}) -> {type_} return %1 : {type_}"

    chain = [f"func.func public @main(%0: {type_}) -> {type_} {{ {call_of(0)} }}"]
    chain += [
        f"func.func private @f{n}(%0: {type_}) -> {type_} {{ {call_of(n + 1)} }}"
        for n in range(depth)
    ]
    last = f"%1 = stablehlo.tanh %0 : {type_} return %1 : {type_}"
    chain += [f"func.func private @f{depth}(%0: {type_}) -> {type_} {{ {last} }}"]
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse("\n".join(chain))
        SummarizeCalls().apply(module.operation)
        first = facts_of(functions_by_name(module.operation)["f0"])
    assert first is not None and first.sizes == (4,)
