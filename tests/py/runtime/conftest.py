"""The toy step, compiled once for all tests of the runtime."""

import functools

import jax
import pytest

from shardc.backend.programs import CompiledProgram, compile_programs
from shardc.plan.executable import Executable
from shardc.runtime.interpreter import Interpreter
from tests.py.runtime.toy_step import toy_executable


@functools.cache
def _compiled(schedule: str, donate: bool) -> tuple[Executable, tuple[CompiledProgram, ...]]:
    executable = toy_executable(schedule, donate=donate)
    return executable, compile_programs(executable, jax.devices())


@pytest.fixture
def toy():
    """toy(schedule, donate) -> (executable, compiled programs)."""

    def make(schedule: str = "gpipe", *, donate: bool = True):
        return _compiled(schedule, donate)

    return make


@pytest.fixture
def interpreter(toy):
    """interpreter(schedule, donate) -> a fresh Interpreter."""

    def make(schedule: str = "gpipe", *, donate: bool = True) -> Interpreter:
        return Interpreter(*toy(schedule, donate=donate))

    return make
