"""`shardc.jit(check="first")` lets right steps through and stops wrong ones, by their leaf."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

import shardc
from shardc import compiler
from shardc.errors import CheckError, InputError, RequestWarning
from shardc.ir.context import parse
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import functions, terminator, walk
from shardc.plan.executable import Executable
from tests.py.table import CLUSTER

Edit = Callable[[ir.Operation], bool]
OPTIMIZER = optax.adam(1e-3)


def step(state: Any, x: Any, y: Any) -> Any:
    """Two layers and adam."""

    def loss_of(params: Any) -> Any:
        h = jnp.tanh(x @ params["w"] + params["b"])
        return jnp.mean((h @ params["v"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    updates, optimizer = OPTIMIZER.update(gradients, state["optimizer"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "optimizer": optimizer}, loss


def arguments(as_jax: bool = False) -> tuple[Any, ...]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32) / 2

    params = {"w": normal(8, 16), "b": normal(16), "v": normal(16, 4)}
    args = {"params": params, "optimizer": OPTIMIZER.init(params)}, normal(16, 8), normal(16, 4)
    return jax.tree.map(jnp.array, args) if as_jax else args


def jitted(**options: Any) -> Any:
    return shardc.jit(
        step, donate_argnums=0, cluster=CLUSTER, check="first", stages=1, mesh=(2, 4), **options
    )


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 2), (2, 2)])
def test_a_right_step_passes_with_donated_arguments(stages: int, microbatches: int) -> None:
    wrapped = shardc.jit(
        step,
        donate_argnums=0,
        cluster=CLUSTER,
        check="first",
        stages=stages,
        microbatches=microbatches,
        mesh=(2, 2),
    )
    expected = jax.jit(step)(*arguments())
    state, x, y = arguments(as_jax=True)
    state, loss = wrapped(state, x, y)
    np.testing.assert_allclose(loss, expected[1], rtol=1e-5)
    wrapped(state, x, y)


@pytest.mark.slow
def test_keys_python_numbers_and_whole_numbers_are_compared_too() -> None:
    def draw(key: Any, scale: Any, x: Any) -> Any:
        return x * scale + jax.random.normal(key, x.shape), jnp.argmax(x, 1), jax.random.split(key)

    wrapped = shardc.jit(draw, cluster=CLUSTER, check="first", stages=1, mesh=(8,))
    noise, largest, _ = wrapped(jax.random.key(3), 2.0, np.eye(8, dtype=np.float32))
    expected = draw(jax.random.key(3), 2.0, jnp.eye(8))
    np.testing.assert_allclose(noise, expected[0], rtol=1e-6)
    np.testing.assert_array_equal(largest, expected[1])


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], None]:
    """Makes every plan run programs that an edit has changed."""
    lower = compiler.lower

    def with_edit(edit: Edit) -> None:
        def broken(*args: Any, **kwargs: Any) -> Executable:
            return _edited(lower(*args, **kwargs), edit)

        monkeypatch.setattr(compiler, "lower", broken)

    return with_edit


def _edited(executable: Executable, edit: Edit) -> Executable:
    programs = list(executable.programs)
    for i, program in enumerate(programs):
        module = parse(program.module)
        with module.context, ir.Location.unknown():
            if edit(module.operation):
                programs[i] = msgspec.structs.replace(program, module=str(module).encode())
                return msgspec.structs.replace(executable, programs=tuple(programs))
    raise AssertionError("nothing to change")


def without_a_sum(module: ir.Operation) -> bool:
    """Each device keeps its own partial sum, or the first part of it."""
    for op in walk(module):
        if op.name in ("stablehlo.all_reduce", "stablehlo.reduce_scatter"):
            shape = shape_of(op.results[0])
            with ir.InsertionPoint(op):
                own = stablehlo.slice(op.operands[0], [0] * len(shape), shape, [1] * len(shape))
            op.results[0].replace_all_uses_with(own)
            op.erase()
            return True
    return False


def with_a_result_off(module: ir.Operation) -> bool:
    """One thousandth is added to the first floating result."""
    for function in functions(module):
        end = terminator(function)
        for i, value in enumerate(end.operands):
            if "f32" in str(value.type):
                with ir.InsertionPoint(end):
                    off = ir.DenseElementsAttr.get_splat(
                        value.type, ir.FloatAttr.get(ir.F32Type.get(), 1e-3)
                    )
                    end.operands[i] = stablehlo.add(value, stablehlo.constant(off))
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("edit", [without_a_sum, with_a_result_off])
def test_a_broken_plan_is_stopped_by_leaf_and_plan(
    edit: Edit, edited: Callable[[Edit], None]
) -> None:
    edited(edit)
    wrapped = jitted(microbatches=1)
    with pytest.raises(CheckError, match="SHARDC-270") as caught:
        wrapped(*arguments(as_jax=True))
    assert "in result" in caught.value.message
    assert "1 stages, 1 microbatches" in str(caught.value.where)
    assert caught.value.exit_code == 1


def test_an_unchecked_plan_is_not_compared(edited: Callable[[Edit], None]) -> None:
    edited(with_a_result_off)
    wrapped = shardc.jit(
        step, cluster=CLUSTER, stages=1, microbatches=1, mesh=(2, 4), donate_argnums=0
    )
    wrapped(*arguments())


@pytest.mark.slow
def test_a_step_without_room_on_one_device_says_so() -> None:
    small = CLUSTER.with_memory(2000)
    wrapped = shardc.jit(lambda x: (x * 2).sum(), cluster=small, check="first", stages=1, mesh=(8,))
    with pytest.warns(RequestWarning, match="not compared with one device: it would hold"):
        wrapped(np.ones((8, 64), np.float32))


def test_a_step_that_calls_the_host_says_so() -> None:
    def loud(x: Any) -> Any:
        jax.debug.callback(lambda total: None, x.sum())
        return x * 2

    wrapped = shardc.jit(loud, cluster=CLUSTER, check="first", stages=1, mesh=(8,))
    with pytest.warns(RequestWarning, match="calls the host"):
        wrapped(np.ones((8, 4), np.float32))


@pytest.mark.slow
def test_only_the_first_step_of_a_plan_is_compared() -> None:
    wrapped = jitted(microbatches=1)
    compiled = wrapped.lower(*arguments()).compile()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(*arguments())
    state, _ = wrapped(*arguments())
    assert all(each._run_next is None for each in wrapped._compiled.values())
    wrapped(state, *arguments()[1:])


@pytest.mark.slow
def test_another_word_for_check_is_refused() -> None:
    with pytest.raises(InputError, match='check is "never" or "first"'):
        shardc.jit(step, check="always")
