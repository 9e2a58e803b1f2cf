"""Steps of the toy pipeline: the right numbers, in the right order, without waiting."""

import dataclasses
import gc
import threading

import jax
import msgspec
import numpy as np
import pytest

from shardc.backend.programs import compile_programs
from shardc.plan.executable import ResultSpec
from shardc.runtime.interpreter import Interpreter
from tests.py.runtime.toy_step import SCHEDULES, toy_inputs, toy_numpy


def test_every_result_equals_numpy_over_three_steps(interpreter):
    for schedule in SCHEDULES:
        step, arguments = interpreter(schedule), toy_inputs()
        reference = arguments
        for _ in range(3):
            results, wanted = step(arguments), toy_numpy(*reference)
            for result, value in zip(results, wanted, strict=True):
                np.testing.assert_allclose(result, value, atol=1e-6)
            arguments = [*results[:2], *arguments[2:]]
            reference = [*wanted[:2], *reference[2:]]


def test_threads_share_a_step_one_after_the_other(interpreter, monkeypatch):
    """A message that one step has sent could be received by another."""
    step = interpreter("1f1b")
    place, begun = step._placer.place, []
    other = threading.Thread(target=lambda: step(toy_inputs()))

    def placed(arguments):
        begun.append(threading.current_thread())
        if len(begun) == 1:
            other.start()
            other.join(0.1)  # as far as it comes
            assert len(begun) == 1
        return place(arguments)

    monkeypatch.setattr(step._placer, "place", placed)
    step(toy_inputs())
    other.join()
    assert begun[1] is other


def test_results_do_not_depend_on_the_schedule(interpreter):
    gpipe, one_f_one_b = (interpreter(name)(toy_inputs()) for name in SCHEDULES)
    for one, other in zip(gpipe, one_f_one_b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_stage_runs_exactly_its_list(interpreter, schedule):
    step = interpreter(schedule)
    step(toy_inputs())
    trace = [action for action, _ in step.last_trace]
    for stage, actions in enumerate(SCHEDULES[schedule]):
        ran = [action for action in trace if action.startswith(str(stage))]
        assert ran == [action for action in actions if "P" not in action]
    times = [when for _, when in step.last_trace]
    assert times == sorted(times)


def test_stages_overlap(interpreter):
    """Stage 0's second microbatch is under way before stage 1 is done with the first."""
    step = interpreter("gpipe")
    step(toy_inputs())
    trace = [action for action, _ in step.last_trace]
    assert trace.index("0F1") < trace.index("1B0")
    assert trace.index("1F0") < trace.index("0B0")


def test_a_step_never_waits(interpreter, monkeypatch):
    step, arguments = interpreter("1f1b"), toy_inputs()
    for _ in range(2):
        arguments = [*step(arguments)[:2], *arguments[2:]]
    on_one_device = [*arguments[:2], *map(jax.numpy.asarray, arguments[2:])]
    jax.block_until_ready(on_one_device)
    step([*map(jax.numpy.copy, on_one_device[:2]), *on_one_device[2:]])
    waited: list[str] = []
    array = type(jax.numpy.zeros(()))

    def spy(name):
        original = getattr(array, name)
        if isinstance(original, property):
            return property(lambda self: waited.append(name) or original.fget(self))
        return lambda self, *args, **kwargs: waited.append(name) or original(self, *args, **kwargs)

    for name in (
        "block_until_ready",
        "_value",
        "__array__",
        "item",
        "tolist",
        "__float__",
        "__bool__",
    ):
        monkeypatch.setattr(array, name, spy(name))
    for name in ("block_until_ready", "device_get"):
        monkeypatch.setattr(jax, name, lambda tree, name=name: waited.append(name))
    results = step(on_one_device)
    assert waited == []
    float(results[2])
    assert waited != []


def test_a_returned_state_moves_nothing(interpreter):
    step, inputs = interpreter(), toy_inputs()
    placed = jax.device_put(inputs[4], step.argument_shardings[4])
    results = step([*inputs[:4], placed])
    for result, sharding in zip(results[:2], step.argument_shardings[:2], strict=True):
        assert result.sharding.is_equivalent_to(sharding, result.ndim)
    assert _placed_by(step, [*results[:2], *inputs[2:4], placed]) == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_arrays_of_the_host_are_cut_without_programs(interpreter, monkeypatch):
    """JAX would compile one for each shape: most of a first step's time."""
    step, asked = interpreter(), []
    find = step._transfers.find
    monkeypatch.setattr(step._transfers, "find", lambda *a: asked.append(a[2]) or find(*a))
    arguments = jax.block_until_ready([jax.numpy.array(value) for value in toy_inputs()])
    step._placer.place(arguments)
    assert asked == [()]  # the rate, which every device has whole


def _placed_by(step: Interpreter, arguments) -> list[bool]:
    return [
        one is other for one, other in zip(step._placer.place(arguments), arguments, strict=True)
    ]


def test_stage_state_lies_on_its_stage(interpreter):
    results = interpreter()(toy_inputs())
    assert {d.id for d in results[0].devices()} == {0, 1, 2, 3}
    assert {d.id for d in results[1].devices()} == {4, 5, 6, 7}


def test_memory_is_free_after_the_last_use(toy):
    executable, programs = toy("1f1b")
    alive: dict[str, int] = {}
    gc.collect()

    def count():
        """Arrays of the shape of a stash: [rows of a microbatch, hidden]."""
        return [a.shape for a in jax.live_arrays() if not a.is_deleted()].count((4, 4))

    others = count()

    def counted(program):
        def call(*args):
            results = program.call(*args)
            key = program.program.name
            alive[key] = max(alive.get(key, 0), count() - others)
            return results

        return dataclasses.replace(program, call=call)

    step = Interpreter(executable, [counted(program) for program in programs])
    step(toy_inputs())
    # At the updates every stashed or sent value of both stages and microbatches is gone.
    assert alive["stage0_update"] == 0
    assert alive["stage1_update"] == 0
    assert alive["stage0_forward"] > 0


def test_an_argument_returned_twice_and_a_value_returned_twice_are_arrays_of_their_own(toy):
    executable, programs = toy()
    more = (*executable.results, executable.results[2], executable.results[4])
    step = Interpreter(msgspec.structs.replace(executable, results=more), programs)
    results = step(toy_inputs())
    for one, other in ((2, 5), (4, 6)):
        assert float(results[one]) == float(results[other])
        results[one].delete()
        float(results[other])


def test_an_argument_no_program_reads_comes_back(toy):
    executable, programs = toy()
    idle = msgspec.structs.replace(
        executable.arguments[4], name="idle", shape=(3,), stage=-1, donated=True
    )
    step = Interpreter(
        msgspec.structs.replace(
            executable,
            arguments=(*executable.arguments, idle),
            results=(*executable.results, ResultSpec("arg5", (3,), "float32", -1)),
        ),
        programs,
    )
    assert step.argument_shardings[5] is None
    given = jax.numpy.arange(3.0)
    back = step([*toy_inputs(), given])[5]
    np.testing.assert_array_equal(back, [0, 1, 2])
    assert given.is_deleted()
    np.testing.assert_array_equal(step([*toy_inputs(), np.ones(3, np.float32)])[5], [1, 1, 1])


@pytest.mark.slow
def test_stages_may_share_devices(toy):
    executable, _ = toy()
    meshes = (executable.meshes[0], executable.meshes[0])
    crowded = msgspec.structs.replace(executable, meshes=meshes)
    step = Interpreter(crowded, compile_programs(crowded, jax.devices()))
    for result, value in zip(step(toy_inputs()), toy_numpy(*toy_inputs()), strict=True):
        np.testing.assert_allclose(result, value, atol=1e-6)
