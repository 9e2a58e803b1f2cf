"""A step unrolled into numbered slots and instructions, so that running it is lists and ints."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardc.errors import ShardcError
from shardc.plan.executable import Executable, ValueSpec
from shardc.plan.layout import TensorSharding
from shardc.plan.value_id import INDEX, argument_id, is_accumulator, is_argument, value_id
from shardc.runtime.dispatch_order import Dispatch, dispatch_order, value_key
from shardc.runtime.programs import Program


@dataclass(frozen=True)
class Slot:
    """A place for one array: a value of one stage, in one sharding, of one microbatch or none."""

    stage: int
    value: str
    sharding: TensorSharding
    microbatch: int | None
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Instruction:
    """Run a program, send on what others wait for, let go of what nobody reads any more.

    Attributes:
        action: as the schedule prints it.
        program: position in `Executable.programs`.
        args, results: slots.
        moves: (source slot, target slot), made as soon as the program is dispatched.
        drops: slots whose last reader this is.
    """

    action: str
    program: int
    args: tuple[int, ...]
    results: tuple[int, ...]
    moves: list[tuple[int, int]] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)


@dataclass
class Tape:
    """One step.

    Attributes:
        slots: what lies where.
        primary: per user argument the slot it is placed in, None where no program reads it.
        argument_moves: (source slot, target slot) from primary slots to where else they are read.
        accumulators: per stage the slots that start as zeros.
        indices: (slot, microbatch) of the microbatch indices.
        heavy, updates: instructions before and in the update phase, in order of dispatch.
        results: per user result its slot; None for an argument that no program reads.
    """

    slots: list[Slot]
    primary: list[int | None]
    argument_moves: list[tuple[int, int]]
    accumulators: list[list[int]]
    indices: list[tuple[int, int]]
    heavy: list[Instruction]
    updates: list[Instruction]
    results: list[int | None]


def build_tape(executable: Executable, programs: Sequence[Program]) -> Tape:
    """Unrolls one step.

    A value read in a sharding or on a stage other than the producer's is moved there once, right
    after it is made. A slot is let go of after its last reader.

    Raises:
        ShardcError: SHARDC-260, the programs do not fit together.
    """
    heavy, updates = dispatch_order(executable, programs)
    return _Builder(executable, programs).build(heavy, updates)


class _Builder:
    def __init__(self, executable: Executable, programs: Sequence[Program]) -> None:
        self.executable = executable
        self.programs = programs
        self.slots: list[Slot] = []
        self.number: dict[tuple[int, str, TensorSharding, int | None], int] = {}
        # The slot in which each value is made, and the last instruction that makes or adds to it.
        self.home: dict[tuple[str, int | None], int] = {}
        self.made_by: dict[tuple[str, int | None], int] = {}

    def slot(self, stage: int, spec: ValueSpec, microbatch: int | None) -> int:
        value, own = value_key(spec, microbatch)
        key = (stage, value, spec.sharding, own)
        if key not in self.number:
            self.number[key] = len(self.slots)
            self.slots.append(Slot(stage, value, spec.sharding, own, spec.shape, spec.dtype))
        return self.number[key]

    def build(self, heavy: list[Dispatch], updates: list[Dispatch]) -> Tape:
        tape = [self.instruction(i, entry) for i, entry in enumerate(heavy + updates)]
        primary = [self.primary_slot(i) for i in range(len(self.executable.arguments))]
        for i, home in enumerate(primary):
            if home is not None:
                self.home[argument_id(i), None] = home
        argument_moves = self.add_moves(tape)
        results = [self.result_slot(result.value) for result in self.executable.results]
        self.add_drops(tape, {slot for slot in results if slot is not None})
        self.check_donation(tape, {slot for slot in results if slot is not None})
        return Tape(
            self.slots,
            primary,
            argument_moves,
            self.accumulators(),
            [
                (i, slot.microbatch)
                for i, slot in enumerate(self.slots)
                if slot.value == INDEX and slot.microbatch is not None
            ],
            tape[: len(heavy)],
            tape[len(heavy) :],
            results,
        )

    def instruction(self, position: int, entry: Dispatch) -> Instruction:
        program = self.programs[entry.program]
        stage = program.program.stage
        args = tuple(self.slot(stage, spec, entry.microbatch) for spec in program.args)
        results = tuple(self.slot(stage, spec, entry.microbatch) for spec in program.results)
        for spec, slot in zip(program.results, results, strict=True):
            key = value_key(spec, entry.microbatch)
            if self.home.setdefault(key, slot) != slot:
                raise _misfit(f"'{spec.value}' is made in two places, one by {entry.action}")
            self.made_by[key] = position
        return Instruction(entry.action, entry.program, args, results)

    def primary_slot(self, index: int) -> int | None:
        """Where user argument `index` is placed.

        On its owner stage, in the sharding of the result that replaces it in the next step: then
        a returned state is in place already. Else in the sharding of its first reader there.
        """
        argument = self.executable.arguments[index]
        used = [i for i, slot in enumerate(self.slots) if slot.value == argument_id(index)]
        if not used:
            return None
        own = [i for i in used if self.slots[i].stage == argument.stage] or used
        if argument.aliased_result is not None:
            successor = self.home.get(
                (self.executable.results[argument.aliased_result].value, None)
            )
            if successor is not None and self.slots[successor].shape == self.slots[own[0]].shape:
                made = self.slots[successor]
                spec = ValueSpec(argument_id(index), made.shape, made.dtype, made.sharding)
                return self.slot(made.stage, spec, None)
        return own[0]

    def add_moves(self, tape: list[Instruction]) -> list[tuple[int, int]]:
        """Appends each slot's move to the instruction that makes the value; returns arguments'."""
        argument_moves = []
        for number, slot in enumerate(self.slots):
            home = self.home.get((slot.value, slot.microbatch))
            if home is None and slot.value != INDEX:
                raise _misfit(f"'{slot.value}' is read on stage {slot.stage} and made nowhere")
            if home is None or home == number:
                continue
            if slot.sharding.unreduced or self.slots[home].sharding.unreduced:
                raise _misfit(f"'{slot.value}' is a partial sum and is read in two shardings")
            maker = self.made_by.get((slot.value, slot.microbatch))
            if maker is None:
                argument_moves.append((home, number))
            else:
                tape[maker].moves.append((home, number))
        return argument_moves

    def accumulators(self) -> list[list[int]]:
        """Slots that a program both reads and writes, per stage."""
        found: list[dict[int, None]] = [{} for _ in self.executable.meshes]
        for program in self.programs:
            stage = program.program.stage
            made = {spec.value: spec for spec in program.results}
            for spec in program.args:
                if not is_accumulator(spec.value) or spec.value not in made:
                    continue
                slot = self.slot(stage, spec, None)
                if self.slot(stage, made[spec.value], None) != slot:
                    raise _misfit(f"'{spec.value}' changes its sharding in {program.program.name}")
                found[stage][slot] = None
        return [list(slots) for slots in found]

    def result_slot(self, value: str) -> int | None:
        home = self.home.get((value, None))
        if home is None and not is_argument(value):
            raise _misfit(f"the result '{value}' is made by no program")
        if home is not None and self.slots[home].sharding.unreduced:
            raise _misfit(f"the result '{value}' is a partial sum")
        return home

    def add_drops(self, tape: list[Instruction], kept: set[int]) -> None:
        last: dict[int, int] = {}
        for position, instruction in enumerate(tape):
            moved = [target for _, target in instruction.moves]
            for slot in (*instruction.args, *instruction.results, *moved):
                last[slot] = position
        for slot, position in last.items():
            if slot not in kept and self.slots[slot].value != INDEX:
                tape[position].drops.append(slot)

    def check_donation(self, tape: list[Instruction], kept: set[int]) -> None:
        """A donated buffer is read by nobody afterwards, and a user's only in an update."""
        for instruction in tape:
            program = self.programs[instruction.program]
            for position in program.donated:
                slot = instruction.args[position]
                value = self.slots[slot].value
                if is_argument(value):
                    argument = self.executable.arguments[value_id(value).number]
                    if not argument.donated or program.program.kind != "update":
                        raise _misfit(f"{program.program.name} donates '{argument.name}'")
                replaced = slot in instruction.results
                if not replaced and (slot in kept or slot not in instruction.drops):
                    raise _misfit(f"{program.program.name} donates '{value}', which is read later")


def _misfit(message: str) -> ShardcError:
    return ShardcError(message, code="SHARDC-260")
