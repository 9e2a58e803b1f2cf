"""What a compiled step sends and holds, beside what its plan says of that.

Bytes of collectives and of memory are XLA's: of its optimised programs, and of its own analysis of
their memory.
"""

import math
from collections.abc import Sequence

import numpy as np

from shardc.aot import Compiled
from shardc.ir.local_collectives import replica_groups
from shardc.plan import Collective, Executable, Mesh, Plan
from shardc.runtime.tape import Instruction, Slot, Tape, build_tape
from tests.py.hlo_text import Collectives, hlo_collectives, wire_itemsize


def on_the_wire(collectives: Sequence[Collective], mesh: Mesh) -> Collectives:
    """(kind, replica groups) -> bytes of results on one device, as CPU devices send them."""
    planned = Collectives()
    for each in collectives:
        groups = tuple(map(tuple, replica_groups(mesh, each.axes).tolist()))
        elements = each.num_bytes // np.dtype(each.dtype).itemsize
        planned[each.kind, groups] += elements * wire_itemsize(each.dtype)
    return planned


def planned_collectives(plan: Plan, stage: int) -> Collectives:
    """What a stage sends in a step, as its plan has it."""
    return on_the_wire(plan.stages[stage].collectives, plan.stages[stage].mesh)


def compiled_collectives(compiled: Compiled, stage: int) -> Collectives:
    """The same of the optimised HLO. Those inside loops count once."""
    texts, found = compiled.hlo_texts(), Collectives()
    for program in compiled.executable.programs:
        if program.stage == stage:
            each = program.kind in ("forward", "backward")
            times = compiled.executable.num_microbatches if each else 1
            for key, num_bytes in hlo_collectives(texts[program.name]).items():
                found[key] += times * num_bytes
    return found


def slot_bytes(executable: Executable, slot: Slot) -> int:
    """Of one slot of the runtime's on one device."""
    mesh = executable.meshes[slot.stage]
    itemsize = np.dtype(slot.dtype).itemsize
    return math.prod(slot.shape) * itemsize // mesh.num_shards(slot.sharding.axes)


def compiled_peak_bytes(compiled: Compiled) -> list[int]:
    """Per stage the most bytes on one of its devices at any time of a step.

    While a program runs, its device holds what XLA says the program needs (arguments + results -
    results in place of arguments + temporaries) and whatever else the runtime keeps for later.
    """
    executable = compiled.executable
    tape = build_tape(executable, compiled.programs)
    analysis = compiled.memory_analysis()
    donated = [program.donated for program in compiled.programs]
    names = [program.program.name for program in compiled.programs]
    sizes = [slot_bytes(executable, slot) for slot in tape.slots]
    held = _placed(tape)
    peaks = [0] * len(executable.meshes)
    for step in (*tape.heavy, *tape.updates):
        stage, needs = executable.programs[step.program].stage, analysis[names[step.program]]
        others = sum(sizes[i] for i in held - set(step.args) if tape.slots[i].stage == stage)
        own = (
            needs.argument_size_in_bytes
            + needs.output_size_in_bytes
            - needs.alias_size_in_bytes
            + needs.temp_size_in_bytes
        )
        peaks[stage] = max(peaks[stage], others + own)
        held = _after(held, step, donated[step.program])
    return peaks


def _placed(tape: Tape) -> set[int]:
    """Slots that are filled before a step begins; the indices of microbatches are next to none."""
    return {
        *(slot for slot in tape.primary if slot is not None),
        *(target for _, target in tape.argument_moves),
        *(slot for slots in tape.accumulators for slot in slots),
    }


def _after(held: set[int], step: Instruction, donated: Sequence[int]) -> set[int]:
    """Filled slots when an instruction has run."""
    gone = {*(step.args[i] for i in donated)} - set(step.results)
    moved = {target for _, target in step.moves}
    return (held - gone | set(step.results) | moved) - set(step.drops)
