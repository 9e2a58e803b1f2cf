"""Compiles stage programs so that they hold about as much memory as planned.

XLA for CPUs schedules a program breadth first, for parallelism: it gathers all sharded weights
before it uses the first. A program that needs much more memory than planned, or more than
available, is therefore compiled again in the order that XLA finds to need the least memory,
unless memory is plentiful: to compile takes as long as the first time.
That order is not better for all programs, so the smaller of the two is used.
"""

from collections.abc import Sequence
from typing import Any

import jax
import msgspec

from shardc.backend.primitive import Callback
from shardc.backend.programs import CompiledProgram, compile_programs
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.runtime.memory_in_use import program_peaks

MUCH_MORE = 1.1  # times the planned peak of the stage
PLENTY = 0.25  # share of the memory of a device below which it does not matter how much is held
LEAST_MEMORY = {"cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}}


def compile_as_planned(
    executable: Executable,
    plan: Plan,
    devices: Sequence[jax.Device],
    compiler_options: dict[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    limits_bytes: Sequence[float] = (),
) -> tuple[CompiledProgram, ...]:
    """Like `compile_programs`, but compares the memory of each program with the plan.

    Programs that XLA partitions (lowering "xla") stay as they are: their memory was
    not planned.

    Args:
        limits_bytes: memory of a device of each stage; (): it is scarce.
    """
    programs = compile_programs(executable, devices, compiler_options, callbacks)
    options = LEAST_MEMORY.get(devices[0].platform)
    if options is None or not all(program.local for program in executable.programs):
        return programs
    needs = {each.program.name: needed_bytes(each) for each in programs}
    peaks = program_peaks(executable, programs, needs)
    planned = [stage.peak_bytes for stage in plan.stages]
    most = [MUCH_MORE * peak for peak in planned]
    if limits_bytes:
        pairs = zip(most, limits_bytes, strict=True)
        most = [min(max(much, PLENTY * limit), limit) for much, limit in pairs]
    large = tuple(
        program for program in executable.programs if peaks[program.name] > most[program.stage]
    )
    if not large:
        return programs
    again = compile_programs(
        msgspec.structs.replace(executable, programs=large),
        devices,
        {**options, **(compiler_options or {})},
        callbacks,
        doing="compiling again for less memory",
    )
    smaller = {each.program.name: each for each in again}
    return tuple(
        min(each, smaller.get(each.program.name, each), key=needed_bytes) for each in programs
    )


def needed_bytes(program: CompiledProgram) -> int:
    """XLA's memory need of a program on one device: arguments + results + temporaries - aliased
    results; 0 if XLA does not report it."""
    found = program.call.memory_analysis()
    if found is None:
        return 0
    return int(
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        + found.temp_size_in_bytes
        - found.alias_size_in_bytes
    )
