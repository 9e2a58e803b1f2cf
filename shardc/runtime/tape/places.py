"""The shardings of a tape's slots, and of the user's arguments."""

from collections.abc import Sequence

from jax.sharding import NamedSharding, Sharding

from shardc.plan.executable import Executable
from shardc.plan.layout import TensorSharding
from shardc.runtime.compiled_program import Program
from shardc.runtime.split_stacks import Stacks
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Tape
from shardc.runtime.transfers import Transfers
from shardc.runtime.user_places import argument_places


def slot_places(tape: Tape, programs: Sequence[Program]) -> list[NamedSharding]:
    """One per slot, from the programs that read and make it."""
    known: dict[tuple[int, TensorSharding], NamedSharding] = {}
    for program in programs:
        specs = program.args + program.results
        for spec, sharding in zip(specs, program.in_shardings + program.out_shardings, strict=True):
            known.setdefault((tape.groups[program.program.stage], spec.sharding), sharding)
    return [known[tape.groups[slot.group], slot.sharding] for slot in tape.slots]


def places_of_arguments(
    executable: Executable, programs: Sequence[Program]
) -> tuple[Sharding | None, ...]:
    """Where each user argument is used without a copy, with each stack as one; None if no
    program reads it. Needs no compilation."""
    tape = build_tape(executable, programs)
    shardings = slot_places(tape, programs)
    arguments = [None if slot is None else shardings[slot] for slot in tape.primary]
    results = [None if slot is None else shardings[slot] for slot in tape.results]
    stacks = Stacks(executable.arguments, executable.results, arguments, results, Transfers())
    return argument_places(executable.arguments, arguments, stacks.argument_places())
