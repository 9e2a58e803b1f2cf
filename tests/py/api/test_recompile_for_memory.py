"""What needs much more memory than was planned is compiled again, and the smaller stays."""

from types import SimpleNamespace

import jax
import msgspec
import pytest

from shardc.api import recompile_for_memory
from shardc.plan.decisions import Plan, StagePlan
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Predicted
from tests.py.compiled_step import compiled_peak_bytes
from tests.py.parallel_gpt import LIMIT_BYTES, tight_gpt
from tests.py.runtime.tape.test_build import Fake, executable, program
from tests.py.runtime.toy_step import spec

GIVEN = executable(
    program(0, "before", [], [spec("v0", (4,), "x")]),
    program(0, "update", [spec("v0", (4,), "x")], [spec("v1", (4,), "x")]),
)
PLAN = Plan(
    1,
    1,
    "gpipe",
    (StagePlan(Mesh((("x", 2),), (0, 1)), (0,), peak_bytes=1000),),
    {},
    Predicted(0.0, 1000, 0, 0.0, 0.0),
    0.0,
    0.0,
    0.0,
)


@pytest.fixture
def calls(monkeypatch):
    """Compiles nothing: `temporaries` says what a program needs, and `seen` what was asked for."""
    found = SimpleNamespace(temporaries={}, seen=[])

    def compile_programs(given, devices, options, callbacks, doing=""):
        found.seen.append(([each.name for each in given.programs], options))
        compiled = []
        for each in given.programs:
            size = found.temporaries[each.name][bool(options)]
            sizes = SimpleNamespace(
                argument_size_in_bytes=0,
                output_size_in_bytes=0,
                alias_size_in_bytes=0,
                temp_size_in_bytes=size,
            )
            call = SimpleNamespace(memory_analysis=lambda sizes=sizes: sizes)
            compiled.append(Fake(each, call))
        return tuple(compiled)

    monkeypatch.setattr(recompile_for_memory, "compile_programs", compile_programs)
    return found


def needed(given=GIVEN, **options):
    compiled = recompile_for_memory.compile_as_planned(given, PLAN, jax.devices(), **options)
    return [recompile_for_memory.needed_bytes(each) for each in compiled]


def test_what_is_held_as_planned_is_compiled_once(calls):
    calls.temporaries = {"stage0_before": (1000, 1), "stage0_update": (1050, 1)}
    assert needed() == [1000, 1050]
    assert len(calls.seen) == 1


def test_only_what_needs_much_more_is_compiled_again(calls):
    calls.temporaries = {"stage0_before": (1000, 1), "stage0_update": (3000, 900)}
    assert needed() == [1000, 900]
    assert [names for names, _ in calls.seen] == [
        ["stage0_before", "stage0_update"],
        ["stage0_update"],
    ]


def test_what_needs_more_than_there_is_is_compiled_again(calls):
    calls.temporaries = {"stage0_before": (1000, 1), "stage0_update": (1050, 990)}
    assert needed(limits_bytes=[1040]) == [1000, 990]
    assert [names for names, _ in calls.seen][1] == ["stage0_update"]


@pytest.mark.parametrize(("limit", "times"), [(20_000, 1), (11_000, 2)])
def test_where_memory_is_plentiful_programs_are_compiled_once(calls, limit, times):
    calls.temporaries = {"stage0_before": (1000, 1), "stage0_update": (3000, 900)}
    assert needed(limits_bytes=[limit]) == [1000, 3000 if times == 1 else 900]
    assert len(calls.seen) == times


def test_the_first_program_stays_where_the_second_needs_more(calls):
    calls.temporaries = {"stage0_before": (2000, 4000), "stage0_update": (10, 1)}
    assert needed() == [2000, 10]


def test_programs_that_xla_partitions_are_left_alone(calls):
    calls.temporaries = {"stage0_before": (9000, 1), "stage0_update": (10, 1)}
    theirs = tuple(msgspec.structs.replace(each, local=False) for each in GIVEN.programs)
    assert needed(msgspec.structs.replace(GIVEN, programs=theirs)) == [9000, 10]


def test_options_of_the_users_come_last(calls):
    calls.temporaries = {"stage0_before": (1, 9000), "stage0_update": (1, 10)}
    own = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_DEFAULT"}
    recompile_for_memory.compile_as_planned(GIVEN, PLAN, jax.devices(), own)
    assert [options for _, options in calls.seen] == [own, own]


@pytest.mark.slow
def test_a_gpt_holds_what_was_planned_under_a_tight_limit() -> None:
    """Its weights are gathered one after the other; breadth first it needs half as much again."""
    assert max(compiled_peak_bytes(tight_gpt())) <= LIMIT_BYTES
