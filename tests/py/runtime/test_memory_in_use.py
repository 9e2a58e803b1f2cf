"""What a device holds while each program of a step runs."""

import jax
import msgspec
import pytest

from shardc.plan.executable import ArgumentSpec, ResultSpec
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.memory_in_use import live_bytes, program_peaks
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Send
from tests.py.runtime.tape.test_build import STATE, Fake, executable, program
from tests.py.runtime.toy_step import SCHEDULES, spec, toy_inputs


def test_what_waits_for_others_counts_beside_what_a_program_needs():
    given = executable(
        program(0, "before", [spec("arg1", (8,), "x")], [spec("v0", (4,), "x")]),
        program(
            0,
            "update",
            [spec("arg0", (4,), "x"), spec("v0", (4,), "x")],
            [spec("v1", (4,), "x")],
            (0,),
        ),
        program(0, "update", [spec("v0", (4,), "x")], [spec("v2", (6,), ".")], round_=1),
        program(1, "update", [spec("v0", (4,), ".")], [spec("v3", (4,), ".")]),
        results=(ResultSpec("v1", (4,), "float32", 0), ResultSpec("v2", (6,), "float32", 0)),
        arguments=(STATE, ArgumentSpec("x", (8,), "float32", 0)),
    )
    names = ("before", "first", "second", "elsewhere")
    pairs = zip(given.programs, names, strict=True)
    programs = tuple(msgspec.structs.replace(each, name=name) for each, name in pairs)
    given = msgspec.structs.replace(given, programs=programs)
    needs = {"before": 100, "first": 1000, "second": 10_000, "elsewhere": 100_000}
    state, batch = 4 * 4 // 2, 8 * 4 // 2
    assert program_peaks(given, [Fake(each) for each in programs], needs) == {
        "before": state + 100,
        "first": batch + 1000,  # the caller keeps its batch
        "second": state + batch + 10_000,  # the next state in place of the donated one
        "elsewhere": 100_000,
    }


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_devices_hold_what_the_tape_says_after_every_instruction(toy, schedule):
    executable, programs = toy(schedule)
    tape = build_tape(executable, programs)
    step = Interpreter(executable, programs)
    arguments = [
        jax.device_put(jax.numpy.array(v), s) if i in (0, 1, 4) else v
        for i, (v, s) in enumerate(zip(toy_inputs(), step.argument_shardings, strict=True))
    ]
    given = {id(arguments[i]) for i in (0, 1, 4)} | set(map(id, step._template))
    # The arrays, not their ids alone: an array of the step may get the id of one that has died.
    others = [each for each in jax.live_arrays() if id(each) not in given]
    found: list[list[int]] = []

    def measured(operation):
        def run(*given):
            operation(*given)
            found.append(bytes_by_device(others))

        return run

    step._before = list(map(measured, step._before))
    step._updates = list(map(measured, step._updates))
    step(arguments)
    planned = live_bytes(executable, programs, tape)
    for instruction, held, on_devices in zip(tape.instructions, planned, found, strict=True):
        if not isinstance(instruction, Send):  # what arrives is there before it is received
            assert on_devices == [held[0]] * 4 + [held[1]] * 4, instruction


def bytes_by_device(others: list[jax.Array]) -> list[int]:
    """Of all buffers but those of `others`, each once: several arrays may show the same one."""
    alive = [each for each in jax.live_arrays() if not each.is_deleted()]
    known = {place for each in others if not each.is_deleted() for place, _ in buffers(each)}
    held = [0] * 8
    for (device, _), num_bytes in dict(
        found for each in alive for found in buffers(each) if found[0] not in known
    ).items():
        held[device] += num_bytes
    return held


def buffers(array):
    """Where the pieces of an array lie, and their sizes in bytes."""
    pieces = [each.data for each in array.addressable_shards if each.data.size]
    return [((each.device.id, each.unsafe_buffer_pointer()), each.nbytes) for each in pieces]
