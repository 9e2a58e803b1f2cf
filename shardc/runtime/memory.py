"""What devices hold while the programs of a step run one after another."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardc.plan.executable import Executable
from shardc.runtime.programs import Program
from shardc.runtime.tape import Slot, Tape, build_tape


def program_peaks(
    executable: Executable, programs: Sequence[Program], needs: Mapping[str, int]
) -> dict[str, int]:
    """Name of each program -> most bytes on a device of its stage while it runs, in one step.

    What the program needs itself, and whatever else the runtime keeps for later.

    Args:
        needs: name of each program -> bytes of its arguments, results and temporaries.
    """
    tape = build_tape(executable, programs)
    donated = [program.donated for program in programs]
    sizes = [slot_bytes(executable, slot) for slot in tape.slots]
    callers = {slot for slot in tape.primary if slot is not None}
    filled = callers | _filled_before(tape)
    peaks = dict.fromkeys(needs, 0)
    for step in (*tape.heavy, *tape.updates):
        program = executable.programs[step.program]
        others = filled - set(step.args)
        held = sum(sizes[i] for i in others if tape.slots[i].stage == program.stage)
        peaks[program.name] = max(peaks[program.name], held + needs[program.name])
        gone = {step.args[i] for i in donated[step.program]} - set(step.results)
        moved = {target for _, target in step.moves}
        filled = filled - gone | set(step.results) | moved
        filled -= set(step.drops) - callers  # what the caller keeps stays
    return peaks


def slot_bytes(executable: Executable, slot: Slot) -> int:
    """Of one slot on one device."""
    mesh = executable.meshes[slot.stage]
    itemsize = np.dtype(slot.dtype).itemsize
    return math.prod(slot.shape) * itemsize // mesh.num_shards(slot.sharding.axes)


def _filled_before(tape: Tape) -> set[int]:
    """Slots that the runtime fills when a step begins; indices are next to nothing."""
    return {
        *(target for _, target in tape.argument_moves),
        *(slot for slots in tape.accumulators for slot in slots),
    }
