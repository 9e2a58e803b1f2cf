"""Unrolls a step into slots and instructions."""

import itertools
from collections.abc import Sequence

from shardc.errors import ShardcError
from shardc.plan.executable import Executable, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding
from shardc.plan.value_id import INDEX, argument_id, is_accumulator, is_argument, value_id
from shardc.runtime.compiled_program import Program
from shardc.runtime.tape.check_tape import check_tape, said
from shardc.runtime.tape.instructions import (
    Free,
    Instruction,
    Message,
    Receive,
    Run,
    Send,
    Slot,
    Tape,
    Zero,
)
from shardc.runtime.tape.order import Dispatch, Key, Keys, dispatch_order
from shardc.schedule.tasks import REDUCE


def build_tape(executable: Executable, programs: Sequence[Program]) -> Tape:
    """Unrolls one step.

    A value read in another sharding or on another device group than its producer's is sent there
    once, right after it is made. A slot is freed after its last reader.

    Raises:
        ShardcError: SHARDC-260, the programs do not fit together; 266, as in `check_tape`.
    """
    before, updates = dispatch_order(executable, programs)
    tape = _Builder(executable, programs).build(before, updates)
    check_tape(tape, programs)
    return tape


class _Builder:
    def __init__(self, executable: Executable, programs: Sequence[Program]) -> None:
        self.executable = executable
        self.programs = programs
        self.keys = Keys(programs)
        self.slots: list[Slot] = []
        self.number: dict[tuple[int, str, TensorSharding, int | None], int] = {}
        self.of_value: dict[str, list[int]] = {}  # positions in `slots`
        # The slot where each value is made, and the last dispatch that makes or adds to it.
        self.home: dict[Key, int] = {}
        self.made_by: dict[Key, int] = {}
        meshes = executable.meshes
        self.groups = tuple(meshes.index(mesh) for mesh in meshes)
        self.apart = _donated_by_neighbours(programs, self.groups)

    def group(self, stage: int, value: str) -> int:
        return stage if value in self.apart else self.groups[stage]

    def slot(self, stage: int, spec: ValueSpec, own: int | None) -> int:
        """The slot of a value of a stage; `own` is its microbatch, its move, or None."""
        value = spec.value
        group = self.group(stage, value)
        key = (group, value, spec.sharding, own)
        if key not in self.number:
            self.number[key] = len(self.slots)
            self.of_value.setdefault(value, []).append(len(self.slots))
            move = self.keys.moved.get(value, "")
            self.slots.append(Slot(group, value, spec.sharding, own, spec.shape, spec.dtype, move))
        return self.number[key]

    def build(self, before: list[Dispatch], updates: list[Dispatch]) -> Tape:
        runs = [self.run(i, entry) for i, entry in enumerate(before + updates)]
        primary = [self.primary_slot(i) for i in range(len(self.executable.arguments))]
        for i, home in enumerate(primary):
            if home is not None:
                self.home[argument_id(i), None] = home
        accumulators = self.accumulators()
        results = [self.result_slot(result.value) for result in self.executable.results]
        kept = {slot for slot in results if slot is not None}
        messages, instructions, first_update = self.instructions(runs, len(before), kept)
        self.check_donation(runs, instructions, kept)
        indices = [
            (i, slot.microbatch)
            for i, slot in enumerate(self.slots)
            if slot.value == INDEX and slot.microbatch is not None
        ]
        return Tape(
            self.slots,
            self.groups,
            primary,
            accumulators,
            indices,
            messages,
            instructions,
            first_update,
            results,
        )

    def run(self, position: int, entry: Dispatch) -> Run:
        program = self.programs[entry.program]
        stage = program.program.stage
        args = tuple(self.slot(stage, s, self.keys.of(s, entry)[1]) for s in program.args)
        results = tuple(self.slot(stage, s, self.keys.of(s, entry)[1]) for s in program.results)
        for spec, slot in zip(program.results, results, strict=True):
            key = self.keys.of(spec, entry)
            if self.home.setdefault(key, slot) != slot:
                raise _misfit(f"'{spec.value}' is made twice, the second time by {entry.action}")
            self.made_by[key] = position
        return Run(entry.action, entry.program, args, results)

    def primary_slot(self, index: int) -> int | None:
        """The slot of user argument `index`.

        On its owner stage, in the sharding of the result that replaces it in the next step: then
        a returned state is already in place. Otherwise in the sharding of its first reader there.
        """
        argument = self.executable.arguments[index]
        used = self.of_value.get(argument_id(index))
        if not used:
            return None
        owner = self.group(argument.stage, argument_id(index)) if argument.stage >= 0 else None
        own = [i for i in used if self.slots[i].group == owner] or used
        if argument.aliased_result is not None:
            successor = self.home.get(
                (self.executable.results[argument.aliased_result].value, None)
            )
            if successor is not None and self.slots[successor].shape == self.slots[own[0]].shape:
                made = self.slots[successor]
                spec = ValueSpec(argument_id(index), made.shape, made.dtype, made.sharding)
                return self.slot(made.group, spec, None)
        return own[0]

    def instructions(
        self, runs: Sequence[Run], num_before: int, kept: set[int]
    ) -> tuple[list[Message], list[Instruction], int]:
        """Each run, followed by the sends of its results and the frees of unused slots.

        Returns:
            The messages, the instructions, and the position of run number `num_before`.
        """
        messages: list[Message] = []
        sends = self.sends(messages)
        last: dict[int, int] = {}
        for position, run in enumerate(runs):
            moved = [
                slot for number in sends.get(position, ()) for slot in _slots(messages[number])
            ]
            for slot in (*run.args, *run.results, *moved):
                last[slot] = position
        for slot in [slot for number in sends.get(-1, ()) for slot in _slots(messages[number])]:
            last.setdefault(slot, -1)
        dying: dict[int, dict[int, list[int]]] = {}
        for slot, position in last.items():
            if slot not in kept and self.slots[slot].value != INDEX:
                of_group = dying.setdefault(position, {})
                of_group.setdefault(self.slots[slot].group, []).append(slot)
        found: list[Instruction] = []
        zeros = self.zeros(runs)
        first_update = -1
        for position in range(-1, len(runs)):
            if position == num_before:
                first_update = len(found)
            if position >= 0:
                found += [*zeros.get(position, ()), runs[position]]
            for number in sends.get(position, ()):
                found += [Send(number), Receive(number)]
            found += [Free(tuple(slots)) for slots in dying.get(position, {}).values()]
        return messages, found, len(found) if first_update < 0 else first_update

    def zeros(self, runs: Sequence[Run]) -> dict[int, list[Zero]]:
        """What fills the sums that begin with an action, by the position of its first run."""
        found: dict[int, list[Zero]] = {}
        known: set[int] = set()
        for _, action in itertools.groupby(enumerate(runs), key=lambda each: each[1].action):
            own = list(action)
            sums = [i for _, run in own for i in run.args if self.slots[i].move == REDUCE]
            begin = tuple(i for i in dict.fromkeys(sums) if i not in known)
            known.update(begin)
            if begin:
                found[own[0][0]] = [Zero(begin)]
        taken = {i for run in runs for i in {*run.args} - {*run.results}}
        for slot in sorted(known - taken):
            raise _misfit(f"what is added to {said(self.slots[slot])} is never reduced")
        return found

    def sends(self, messages: list[Message]) -> dict[int, list[int]]:
        """Appends the messages; returns those of each run's results, and of arguments at -1."""
        moves: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for number, slot in enumerate(self.slots):
            key = (slot.value, slot.microbatch)
            home = self.home.get(key)
            if home is None and slot.value != INDEX:
                raise _misfit(f"'{slot.value}' is read on stage {slot.group} but never made")
            if home is None or home == number:
                continue
            source = self.slots[home]
            if slot.sharding.unreduced or source.sharding.unreduced:
                raise _misfit(f"'{slot.value}' is a partial sum and is read in two shardings")
            place = (self.made_by.get(key, -1), source.group, slot.group)
            moves.setdefault(place, []).append((home, number))
        sends: dict[int, list[int]] = {}
        for (position, source_group, target), pairs in moves.items():
            sends.setdefault(position, []).append(len(messages))
            messages.append(Message(source_group, target, tuple(pairs)))
        return sends

    def accumulators(self) -> list[list[int]]:
        """Slots that a program both reads and writes, per stage."""
        found: list[dict[int, None]] = [{} for _ in self.executable.meshes]
        for program in self.programs:
            stage = program.program.stage
            made = {spec.value: spec for spec in program.results}
            for spec in program.args:
                if not is_accumulator(spec.value) or spec.value not in made:
                    continue
                if spec.value in self.keys.moved:  # it begins behind each R
                    continue
                slot = self.slot(stage, spec, None)
                if self.slot(stage, made[spec.value], None) != slot:
                    raise _misfit(f"'{spec.value}' changes its sharding in {program.program.name}")
                found[stage][slot] = None
        return [list(slots) for slots in found]

    def result_slot(self, value: str) -> int | None:
        home = self.home.get((value, None))
        if home is None and not is_argument(value):
            raise _misfit(f"no program makes the result '{value}'")
        if home is not None and self.slots[home].sharding.unreduced:
            raise _misfit(f"the result '{value}' is a partial sum")
        return home

    def check_donation(
        self, runs: Sequence[Run], instructions: Sequence[Instruction], kept: set[int]
    ) -> None:
        """Checks that donated buffers are not read later, and user buffers go only in updates."""
        last = {slot: i for i, run in enumerate(runs) for slot in (*run.args, *run.results)}
        for position, run in enumerate(runs):
            program = self.programs[run.program]
            for number in program.donated:
                slot = run.args[number]
                value = self.slots[slot].value
                if is_argument(value):
                    argument = self.executable.arguments[value_id(value).number]
                    if not argument.donated or program.program.kind is not FunctionKind.UPDATE:
                        raise _misfit(f"{program.program.name} donates '{argument.name}'")
                replaced = slot in run.results
                if not replaced and (slot in kept or last[slot] > position):
                    raise _misfit(f"{program.program.name} donates '{value}', which is read later")


def _donated_by_neighbours(programs: Sequence[Program], groups: Sequence[int]) -> set[str]:
    """Values that a program donates while another stage on the same devices may still read them.

    Each of these stages gets its own buffer for them.
    """
    readers: dict[tuple[str, int], set[tuple[int, bool]]] = {}
    donors: dict[tuple[str, int], set[tuple[int, bool]]] = {}
    for program in programs:
        stage, is_update = program.program.stage, program.program.kind is FunctionKind.UPDATE
        made = {spec.value for spec in program.results}
        for position, spec in enumerate(program.args):
            key = (spec.value, groups[stage])
            readers.setdefault(key, set()).add((stage, is_update))
            if position in program.donated and spec.value not in made:
                donors.setdefault(key, set()).add((stage, is_update))
    return {
        key[0]
        for key, of_value in donors.items()
        for stage, is_last in of_value
        for other, is_update in readers[key]
        if other != stage and (is_update or not is_last)
    }


def _slots(message: Message) -> list[int]:
    return [slot for move in message.moves for slot in move]


def _misfit(message: str) -> ShardcError:
    return ShardcError(message, code="SHARDC-260")
