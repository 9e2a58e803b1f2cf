"""What a compiled step sends and holds, beside what its plan says of that.

Bytes of collectives and of memory are XLA's: of its optimised programs, and of its own analysis of
their memory.
"""

from collections.abc import Sequence

import numpy as np

from shardc.api.recompile_for_memory import needed_bytes
from shardc.api.stages import Compiled
from shardc.backend.stage_text import program_text
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Collective
from shardc.rewrite.local.collectives import replica_groups
from shardc.runtime.memory_in_use import program_peaks
from tests.py.hlo_text import Collectives, hlo_collectives, known_everywhere, wire_itemsize


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
    """The same of the optimised HLO, and what XLA has dropped."""
    texts, found = compiled.hlo_texts(), Collectives()
    for program in compiled.executable.programs:
        if program.stage == stage:
            each = program.kind in ("forward", "backward")
            times = compiled.executable.num_microbatches if each else 1
            sent = hlo_collectives(texts[program.name])
            sent.update(known_everywhere(program_text(program)))
            for key, num_bytes in sent.items():
                found[key] += times * num_bytes
    return found


def compiled_peak_bytes(compiled: Compiled) -> list[int]:
    """Per stage the most bytes on one of its devices at any time of a step."""
    executable = compiled.executable
    needs = {each.program.name: needed_bytes(each) for each in compiled.programs}
    found = program_peaks(executable, compiled.programs, needs)
    peaks = [0] * len(executable.meshes)
    for program in executable.programs:
        peaks[program.stage] = max(peaks[program.stage], found[program.name])
    return peaks
