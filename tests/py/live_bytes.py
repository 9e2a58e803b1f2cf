"""What devices hold while a step runs, beside what the checker says."""

import gc
import math
from typing import Any

import jax

from shardc.api.compiled import Compiled
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import is_computed
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Send


def measured_peaks(step: Compiled, args: Any) -> dict[int, int]:
    """Of each device the most bytes of live arrays that a step makes and lets go of again: all but
    the caller's, sums over all microbatches of a step, and what updates make."""
    executable, interpreter = step.executable, Interpreter(step.executable, step.programs)
    made_once = {
        spec.value
        for program in executable.programs
        if program.kind is FunctionKind.UPDATE
        for spec in program.results
    }
    tape = build_tape(executable, step.programs)
    others = [
        i
        for i, slot in enumerate(tape.slots)
        if not (is_computed(slot.value) or slot.move) or slot.value in made_once
    ]
    gc.collect()
    before: dict[int, jax.Array] = {}  # all that lives when the first action begins
    peak: dict[int, int] = {}

    instructions = iter(tape.instructions)

    def looked_at(operation: Any) -> Any:
        def run(env: Any, *rest: Any) -> None:
            if not before:
                before.update({id(each): each for each in jax.live_arrays()})
            operation(env, *rest)
            if isinstance(next(instructions), Send):
                return  # what arrives has come before it is received
            apart = before.keys() | {id(env[i]) for i in others if env[i] is not None}
            held: dict[int, int] = {}
            for array in jax.live_arrays():
                if id(array) not in apart and not array.is_deleted():
                    piece = math.prod(array.sharding.shard_shape(array.shape))
                    for device in array.sharding.device_set:
                        held[device.id] = held.get(device.id, 0) + piece * array.dtype.itemsize
            for device, num_bytes in held.items():
                peak[device] = max(peak.get(device, 0), num_bytes)

        return run

    interpreter._before = [looked_at(each) for each in interpreter._before]
    interpreter._updates = [looked_at(each) for each in interpreter._updates]
    jax.block_until_ready(interpreter(jax.tree.leaves(args)))
    return peak
