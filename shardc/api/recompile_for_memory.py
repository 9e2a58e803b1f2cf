"""Stage programs compiled so that they hold about what was planned.

XLA for CPUs orders a program breadth first, so that much of it can run at once: of several weights
that are to be gathered, all are before the first is used. A program that needs much more memory
than was planned, or more than there is, is therefore compiled once more in the order that XLA finds
to need the least memory. That order is no better for all programs, so the smaller of both is taken.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import msgspec

from shardc.backend.primitive import Callback
from shardc.backend.programs import CompiledProgram, compile_programs
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.runtime.memory import program_peaks

MUCH_MORE = 1.1  # times the planned peak of the stage
LEAST_MEMORY = {"cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}}


def compile_as_planned(
    executable: Executable,
    plan: Plan,
    devices: Sequence[jax.Device],
    compiler_options: dict[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    limits_bytes: Sequence[float] = (),
) -> tuple[CompiledProgram, ...]:
    """As `compile_programs`, with an eye on memory.

    Programs that XLA partitions itself (lowering "xla") are left as they are: what they hold was
    not planned.

    Args:
        limits_bytes: of a device of each stage; no more should be held.
    """
    programs = compile_programs(executable, devices, compiler_options, callbacks)
    options = LEAST_MEMORY.get(devices[0].platform)
    if options is None or not all(program.local for program in executable.programs):
        return programs
    needs = {each.program.name: needed_bytes(each) for each in programs}
    peaks = program_peaks(executable, programs, needs)
    planned = [stage.peak_bytes for stage in plan.stages]
    limits = list(limits_bytes) or [math.inf] * len(planned)
    large = tuple(
        program
        for program in executable.programs
        if peaks[program.name] > min(MUCH_MORE * planned[program.stage], limits[program.stage])
    )
    if not large:
        return programs
    again = compile_programs(
        msgspec.structs.replace(executable, programs=large),
        devices,
        {**options, **(compiler_options or {})},
        callbacks,
    )
    smaller = {each.program.name: each for each in again}
    return tuple(
        min(each, smaller.get(each.program.name, each), key=needed_bytes) for each in programs
    )


def needed_bytes(program: CompiledProgram) -> int:
    """What XLA says a program needs on one device: arguments + results + temporaries - results in
    place of arguments; 0 where it does not say."""
    found = program.call.memory_analysis()
    if found is None:
        return 0
    return int(
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        + found.temp_size_in_bytes
        - found.alias_size_in_bytes
    )
