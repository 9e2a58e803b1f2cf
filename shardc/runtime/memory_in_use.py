"""The memory in use on devices at each instruction of a step."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from shardc.plan.executable import Executable
from shardc.runtime.compiled_program import Program
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Free, Instruction, Receive, Run, Slot, Tape, Zero


def program_peaks(
    executable: Executable, programs: Sequence[Program], needs: Mapping[str, int]
) -> dict[str, int]:
    """Name of each program -> peak bytes on a device of its stage while it runs, in one step.

    Counts the memory of the program itself and everything else that the runtime keeps.

    Args:
        needs: name of each program -> bytes of its arguments, results and temporaries.
    """
    tape = build_tape(executable, programs)
    sizes = [slot_bytes(executable, slot) for slot in tape.slots]
    peaks = dict.fromkeys(needs, 0)
    filled = tape.filled_first
    for instruction, after in filled_after(executable, programs, tape):
        if isinstance(instruction, Run):
            program = programs[instruction.program].program
            group = tape.groups[program.stage]
            held = sum(
                sizes[i]
                for i in filled - set(instruction.args)
                if tape.groups[tape.slots[i].group] == group
            )
            peaks[program.name] = max(peaks[program.name], held + needs[program.name])
        filled = after
    return peaks


def live_bytes(executable: Executable, programs: Sequence[Program], tape: Tape) -> list[list[int]]:
    """Per instruction and stage, the bytes in use on each of the stage's devices at that time.

    Counts arrays only, including the caller's; stages that share an earlier stage's devices get 0.
    """
    sizes = [slot_bytes(executable, slot) for slot in tape.slots]
    found = []
    for _, filled in filled_after(executable, programs, tape):
        held = [0] * len(executable.meshes)
        for i in filled:
            held[tape.groups[tape.slots[i].group]] += sizes[i]
        found.append(held)
    return found


def slot_bytes(executable: Executable, slot: Slot) -> int:
    """Bytes of one slot on one device."""
    mesh = executable.meshes[slot.group]
    itemsize = np.dtype(slot.dtype).itemsize
    return math.prod(slot.shape) * itemsize // mesh.num_shards(slot.sharding.axes)


def filled_after(
    executable: Executable, programs: Sequence[Program], tape: Tape
) -> Iterator[tuple[Instruction, frozenset[int]]]:
    """Each instruction, and the slots that hold an array after it.

    The caller keeps arrays that were not donated. A batch is first split into microbatches; that
    copy belongs to the runtime.
    """
    callers = {
        slot
        for slot, argument in zip(tape.primary, executable.arguments, strict=True)
        if slot is not None and argument.batch_dim is None
    }
    filled = tape.filled_first
    for instruction in tape.instructions:
        match instruction:
            case Run(_, program, args, results):
                filled = filled - {args[i] for i in _taken(programs[program])} | set(results)
            case Receive(message):
                filled |= {target for _, target in tape.messages[message].moves}
            case Zero(slots):
                filled |= set(slots)
            case Free(slots):
                filled -= set(slots) - callers
        yield instruction, filled


def _taken(program: Program) -> list[int]:
    """Positions of donated arguments whose buffers results reuse; others live until freed."""
    free = Counter((spec.shape, spec.dtype, spec.sharding) for spec in program.results)
    taken = []
    for position in program.donated:
        spec = program.args[position]
        if free[spec.shape, spec.dtype, spec.sharding]:
            free[spec.shape, spec.dtype, spec.sharding] -= 1
            taken.append(position)
    return taken
