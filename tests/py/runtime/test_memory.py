"""What a device holds while each program of a step runs."""

import msgspec

from shardc.plan.executable import ArgumentSpec, ResultSpec
from shardc.runtime.memory import program_peaks
from tests.py.runtime.test_tape import STATE, Fake, executable, program
from tests.py.runtime.toy_step import spec


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
