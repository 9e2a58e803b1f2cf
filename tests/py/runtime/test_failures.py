"""What survives when a step is left by an exception, a NaN or Ctrl-C."""

import dataclasses
import os
import signal

import jax
import numpy as np
import pytest

from shardc.errors import InputError
from shardc.runtime.interpreter import Interpreter
from tests.py.runtime.toy_step import toy_inputs, toy_numpy


def placed(step: Interpreter):
    values = toy_inputs()
    return [
        jax.device_put(jax.numpy.array(v), s) if i in (0, 1, 4) else v
        for i, (v, s) in enumerate(zip(values, step.argument_shardings, strict=True))
    ]


def with_call(programs, name, wrap):
    """The programs, with `wrap(call)` in place of the call of program `name`."""
    return [
        dataclasses.replace(p, call=wrap(p.call)) if p.program.name == name else p for p in programs
    ]


def intact(arguments) -> bool:
    for argument, value in zip(arguments, toy_inputs(), strict=True):
        np.testing.assert_array_equal(argument, value)
    return True


def same(results, wanted):
    for result, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, value, atol=1e-6)


def failing(error):
    def wrap(call):
        def fail(*args):
            raise error

        return fail

    return wrap


@pytest.mark.parametrize(
    "name", ["stage0_forward", "stage1_forward", "stage1_backward", "stage0_backward"]
)
@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_a_failure_before_the_updates_leaves_all_arguments(toy, name, error):
    executable, programs = toy()
    step = Interpreter(executable, with_call(programs, name, failing(error)))
    arguments = placed(step)
    with pytest.raises(type(error)):
        step(arguments)
    assert intact(arguments)
    same(Interpreter(executable, programs)(arguments), toy_numpy(*toy_inputs()))


def test_a_failing_update_says_which_arguments_are_gone(toy):
    executable, programs = toy()
    step = Interpreter(
        executable, with_call(programs, "stage1_update", failing(RuntimeError("no")))
    )
    arguments = placed(step)
    with pytest.raises(RuntimeError, match="no") as caught:
        step(arguments)
    said = "shardc: the updates had begun; donated arguments that are gone: "
    assert caught.value.__notes__ == [f"{said}w0"]
    assert arguments[0].is_deleted() and not arguments[1].is_deleted()
    with pytest.raises(RuntimeError, match="no") as caught:
        step(toy_inputs())  # copied into place
    assert caught.value.__notes__[-1] == f"{said}none"


def interrupting(call):
    def interrupt(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return call(*args)

    return interrupt


def test_an_interrupt_before_the_updates_leaves_all_arguments(toy):
    executable, programs = toy()
    step = Interpreter(executable, with_call(programs, "stage0_backward", interrupting))
    arguments = placed(step)
    with pytest.raises(KeyboardInterrupt):
        step(arguments)
    assert intact(arguments)
    assert step.unreturned_results is None


def test_an_interrupt_in_the_updates_waits_and_the_new_state_is_kept(toy):
    executable, programs = toy()
    step = Interpreter(executable, with_call(programs, "stage0_update", interrupting))
    arguments = placed(step)
    with pytest.raises(KeyboardInterrupt):
        step(arguments)
    assert [action for action, _ in step.last_trace][-2:] == ["0U", "1U"]
    assert arguments[0].is_deleted() and arguments[1].is_deleted()
    same(step.unreturned_results, toy_numpy(*toy_inputs()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_debug_nans_names_the_program_and_leaves_all_arguments(interpreter):
    step = interpreter()
    values = placed(step)
    values[3] = np.full_like(values[3], np.nan)
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        step(values)
    assert "stage1_forward (action 1F0)" in str(caught.value)
    np.testing.assert_array_equal(values[0], toy_inputs()[0])
    np.testing.assert_array_equal(values[1], toy_inputs()[1])
    step(values)  # without the check NaNs are numbers like others


def test_a_nan_made_by_an_update_is_reported_once_the_step_is_complete(interpreter):
    step = interpreter()
    values = placed(step)
    values[4] = np.float32(np.nan)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="'v3' of stage0_update"):
        step(values)
    assert np.isnan(step.unreturned_results[0]).all()


def test_debug_infs_is_kept_apart_from_debug_nans(interpreter):
    step = interpreter()
    values = placed(step)
    values[3] = np.full_like(values[3], np.inf)
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match="infinity in the result"):
        step(values)
    with jax.debug_nans(True):
        same(step(toy_inputs()), toy_numpy(*toy_inputs()))


@pytest.mark.parametrize(
    ("code", "spoil"),
    [
        ("SHARDC-262", lambda values: values[0].delete()),
        ("SHARDC-263", lambda values: values.pop()),
        ("SHARDC-263", lambda values: values.__setitem__(2, values[2][:4])),
        ("SHARDC-263", lambda values: values.__setitem__(2, values[2].astype(np.int32))),
        ("SHARDC-264", lambda values: values.append(values[0])),
        ("SHARDC-264", lambda values: values.append(jax.device_put(values[0], jax.devices()[0]))),
    ],
)
def test_an_unusable_argument_is_refused_before_anything_runs(toy, code, spoil):
    executable, programs = toy()
    if code == "SHARDC-264":
        twice = (*executable.arguments, executable.arguments[0])
        executable = type(executable)(
            executable.meshes, executable.programs, twice, executable.results, 2, executable.actions
        )
    step = Interpreter(executable, programs)
    values = placed(step) if code != "SHARDC-264" else [jax.numpy.array(v) for v in toy_inputs()]
    spoil(values)
    with pytest.raises(InputError) as caught:
        step(values)
    assert caught.value.code == code
    assert step.last_trace == []
    assert not values[1].is_deleted()
