"""Whose buffers are whose: user arrays on device 0, in NumPy, in place; donated or not."""

import threading
import time
from random import Random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.errors import InputError
from shardc.runtime.arguments import donated_once
from shardc.runtime.arguments.donated_once import DonatedOnce, check_donated_once
from tests.py.runtime.toy_step import toy_inputs, toy_numpy

PLACES = {
    "numpy": lambda values, step: values,
    "device 0": lambda values, step: [
        jax.device_put(jnp.array(v), jax.devices()[0]) for v in values
    ],
    "device 7": lambda values, step: [
        jax.device_put(jnp.array(v), jax.devices()[7]) for v in values
    ],
    "in place": lambda values, step: [
        jax.device_put(v, s) if v.shape == () or i < 2 else v
        for i, (v, s) in enumerate(zip(values, step.argument_shardings, strict=True))
    ],
    "the other stage": lambda values, step: [
        jax.device_put(v, step.argument_shardings[1 - i]) if i < 2 else v
        for i, v in enumerate(values)
    ],
    "all devices": lambda values, step: [
        jax.device_put(
            v,
            jax.sharding.NamedSharding(
                jax.make_mesh((8,), ("all",)), jax.P("all") if i in (2, 3) else jax.P()
            ),
        )
        for i, v in enumerate(values)
    ],
}


def same(results, wanted):
    for result, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, value, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_donated_stays_readable(interpreter, place):
    step, values = interpreter(donate=False), toy_inputs()
    arguments = PLACES[place](values, step)
    wanted = toy_numpy(*values)
    results = step(arguments)
    same(results, wanted)
    for argument, value in zip(arguments, toy_inputs(), strict=True):
        np.testing.assert_array_equal(argument, value)
    # No result shares a buffer with an argument: it survives the argument's end.
    for argument in arguments:
        if isinstance(argument, jax.Array):
            argument.delete()
    same(results, wanted)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_donated_is_gone_after_the_first_call(interpreter, place):
    step, values = interpreter(donate=True), toy_inputs()
    arguments = PLACES[place](values, step)
    same(step(arguments), toy_numpy(*values))
    for i, (argument, value) in enumerate(zip(arguments, toy_inputs(), strict=True)):
        if isinstance(argument, jax.Array):
            assert argument.is_deleted() == (i < 2)
        if i >= 2:
            np.testing.assert_array_equal(argument, value)


def test_a_numpy_array_may_be_written_to_right_after_the_call(interpreter):
    step, values = interpreter(donate=False), toy_inputs()
    wanted = toy_numpy(*toy_inputs())
    aligned = []
    for value in values:
        # JAX takes over the memory of NumPy arrays that start at a multiple of 64 bytes.
        raw = np.zeros(value.nbytes + 64, np.uint8)
        start = -raw.__array_interface__["data"][0] % 64
        view = raw[start : start + value.nbytes].view(np.float32).reshape(value.shape)
        view[...] = value
        aligned.append(view)
    results = step(aligned)
    for value in aligned:
        value[...] = np.nan
    same(results, wanted)


def test_donated_state_in_place_is_updated_in_place(interpreter):
    step, values = interpreter(), toy_inputs()
    state = step(values)[:2]
    jax.block_until_ready(state)
    pointers = [[s.data.unsafe_buffer_pointer() for s in leaf.addressable_shards] for leaf in state]
    new = step([*state, *values[2:]])[:2]
    assert all(leaf.is_deleted() for leaf in state)
    assert pointers == [
        [s.data.unsafe_buffer_pointer() for s in leaf.addressable_shards] for leaf in new
    ]


def test_python_scalars_are_arguments_too(interpreter):
    values = toy_inputs()
    same(interpreter()([*values[:4], 0.1]), toy_numpy(*values))


def test_other_threads_run_while_an_array_that_is_not_ready_is_looked_at():
    """The thread that ends a process, too, if another process never sends the array."""

    def product(x):
        return jax.lax.fori_loop(0, 60, lambda _, y: jnp.tanh(y @ x), x)

    def beat():
        while not stop.wait(0.005):
            beats.append(time.perf_counter())

    compiled, x = jax.jit(product), jnp.ones((600, 600))
    compiled(x).block_until_ready()
    beats, stop = [], threading.Event()
    thread = threading.Thread(target=beat)
    thread.start()
    waiting = compiled(compiled(x))  # has no memory before the first one ends
    assert not waiting.is_ready()
    start_s = time.perf_counter()
    check_donated_once((), [waiting])
    end_s = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(start_s < each < end_s for each in beats) >= 3, end_s - start_s


class Given(NamedTuple):
    """An argument."""

    name: str
    donated: bool


def another_view(value):
    pieces = [shard.data for shard in value.addressable_shards]
    return jax.make_array_from_single_device_arrays(value.shape, value.sharding, pieces)


# state, state, teacher, batch -> what a user may pass to the step after
ALIASES = {
    "of two results": lambda a, b, t: [a, another_view(a), t],
    "of a result and an argument": lambda a, b, t: [a, b, another_view(b)],
    "of an older argument": lambda a, b, t: [t, b, another_view(t)],
    "itself": lambda a, b, t: [a, a, t],
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_view_of_what_a_step_returned_is_not_donated_with_it(name):
    donated = DonatedOnce([Given("a", True), Given("b", True), Given("t", False)])
    given = [jnp.full((4,), float(i)) for i in range(3)]
    donated.check(given)
    results = [jnp.ones(4), jnp.zeros(4)]
    donated.returned(results)
    donated.check([*results, given[2]])
    with pytest.raises(InputError, match="SHARDC-264"):
        donated.check(ALIASES[name](*results, given[2]))


def test_no_address_is_read_of_results_and_of_what_is_older_or_has_another_type(monkeypatch):
    donated = DonatedOnce([Given("a", True), Given("t", False), Given("x", False)])
    state, teacher = jnp.ones(4), jnp.ones(4)
    for _ in range(2):
        donated.check([state, teacher, jnp.ones(8)])
        donated.returned([state := jnp.ones(4)])
    monkeypatch.setattr(donated_once, "_buffers", None)
    donated.check([state, teacher, jnp.ones(8)])
    donated.check([state, teacher, np.ones(4)])
    with pytest.raises(TypeError):
        donated.check([state, teacher, jnp.ones(4)])


def refused(check, *given):
    try:
        check(*given)
    except InputError:
        return True
    return False


def test_a_view_that_a_step_in_between_took_is_not_donated_with_what_it_is_a_view_of():
    donated = DonatedOnce([Given("a", True), Given("t", False)])
    donated.check([jnp.ones(4), jnp.ones(4)])
    donated.returned([state := jnp.ones(4)])
    view = another_view(state)
    donated.check([jnp.ones(4), view])
    donated.returned([jnp.ones(4)])
    with pytest.raises(InputError, match="SHARDC-264"):
        donated.check([state, view])


def test_of_a_known_state_only_what_is_new_is_looked_at(monkeypatch):
    """A new array of another type does not make the rest of the state new."""
    looked: list[Any] = []
    monkeypatch.setattr(donated_once, "_buffers", lambda array: looked.append(array) or [])
    donated = DonatedOnce([Given("a", True), Given("b", True), Given("step", True)])
    donated.check([jnp.ones(4), jnp.zeros(4), jnp.int32(0)])
    donated.returned(results := [jnp.ones(4), jnp.zeros(4), jnp.int32(1)])
    looked.clear()
    donated.check([*results[:2], other := jnp.int32(1)])
    assert not looked
    donated.passed_on(results[2], other)
    monkeypatch.setattr(donated_once, "_type", None)
    donated.check([*results[:2], other])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_earlier_steps_never_hides_an_alias(seed):
    """Beside the addresses of all arguments, over steps that are given results of this and of
    earlier steps, views of them, and arrays that were arguments before, in any place."""
    random = Random(seed)
    arguments = [Given("a", True), Given("b", seed % 2 == 0), Given("t", False), Given("x", False)]
    donated = DonatedOnce(arguments)
    pool = [jnp.full((2,), float(i)) for i in range(4)]
    last, outcomes = pool[:2], set()
    for step in range(40):
        usual = [*last, pool[3], jnp.ones(2)]
        values = [
            each if random.random() < 0.7 else random.choice([*usual, *pool]) for each in usual
        ]
        values = [another_view(each) if random.random() < 0.1 else each for each in values]
        wanted = refused(check_donated_once, arguments, values)
        assert refused(donated.check, values) == wanted, (step, outcomes)
        outcomes.add(wanted)
        if not wanted:
            last = [jnp.full((2,), float(step)), jnp.zeros(2)]
            donated.returned(last)
            pool = [*pool, *last, *values][-12:] if random.random() < 0.7 else pool
    assert outcomes == {True, False}
