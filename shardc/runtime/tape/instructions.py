"""The language of the runtime: run a program, send, receive, fill with zeros, free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardc.plan.layout import TensorSharding


class Slot(NamedTuple):
    """A place for one array: a value on one device group, in one sharding, of one microbatch.

    Attributes:
        group: number of the first stage on these devices; stages with equal meshes share slots.
        microbatch: None for a value that exists once per step. Of what moves gather or reduce, the
            number of the move.
        move: the kind of these moves; "" for all other values.
    """

    group: int
    value: str
    sharding: TensorSharding
    microbatch: int | None
    shape: tuple[int, ...]
    dtype: str
    move: str = ""


class Message(NamedTuple):
    """Values sent together from one device group to another, or resharded inside one.

    Attributes:
        source, target: device groups.
        moves: (slot at the source, slot at the target).
    """

    source: int
    target: int
    moves: tuple[tuple[int, int], ...]


class Run(NamedTuple):
    """Runs a program.

    Attributes:
        action: as the schedule prints it; several programs may belong to one.
        program: position in `Executable.programs`.
        args, results: slots.
    """

    action: str
    program: int
    args: tuple[int, ...]
    results: tuple[int, ...]

    def __str__(self) -> str:
        return self.action


class Send(NamedTuple):
    """Sends a message, given by its position in `Tape.messages`."""

    message: int

    def __str__(self) -> str:
        return f"send message {self.message}"


class Receive(NamedTuple):
    """Receives a message."""

    message: int

    def __str__(self) -> str:
        return f"receive message {self.message}"


class Zero(NamedTuple):
    """Fills slots of one device group with zeros: sums that begin here."""

    slots: tuple[int, ...]

    def __str__(self) -> str:
        return f"zero {', '.join(map(str, self.slots))}"


class Free(NamedTuple):
    """Frees slots that are not read any more."""

    slots: tuple[int, ...]

    def __str__(self) -> str:
        return f"free {', '.join(map(str, self.slots))}"


Instruction = Run | Send | Receive | Zero | Free


@dataclass
class Tape:
    """One step of all device groups, in one order that agrees with every lane.

    A process runs the part that involves its devices (`part`).

    Attributes:
        slots: the places for arrays.
        groups: per stage, the device group whose slots it uses.
        primary: per user argument, the slot where it is placed; None if no program reads it.
        accumulators: per stage, the slots that start as zeros when the step begins.
        indices: (slot, microbatch) of the microbatch indices.
        messages: all messages of the step.
        instructions: in order of dispatch.
        first_update: position of the first instruction that may consume user arrays.
        results: per user result, its slot; None for an argument that no program reads.
    """

    slots: list[Slot]
    groups: tuple[int, ...]
    primary: list[int | None]
    accumulators: list[list[int]]
    indices: list[tuple[int, int]]
    messages: list[Message]
    instructions: list[Instruction]
    first_update: int
    results: list[int | None]

    @property
    def filled_first(self) -> frozenset[int]:
        """Slots that are filled before the first instruction."""
        return frozenset(
            [
                *(slot for slot in self.primary if slot is not None),
                *(slot for slots in self.accumulators for slot in slots),
                *(slot for slot, _ in self.indices),
            ]
        )

    @property
    def runs(self) -> list[Run]:
        """The programs in order of dispatch."""
        return [each for each in self.instructions if isinstance(each, Run)]

    def part(
        self, groups: Sequence[int], takes_part: Callable[[int], bool]
    ) -> tuple[list[Instruction], list[Instruction]]:
        """The instructions of one process before and from the first update, in tape order.

        Args:
            groups: by program, its device group.
            takes_part: whether the process has devices of a group.
        """
        found: tuple[list[Instruction], list[Instruction]] = [], []
        for position, instruction in enumerate(self.instructions):
            own: Instruction | None = instruction
            match instruction:
                case Run(_, program, _, _):
                    own = instruction if takes_part(groups[program]) else None
                case Send(message):
                    own = instruction if takes_part(self.messages[message].source) else None
                case Receive(message):
                    own = instruction if takes_part(self.messages[message].target) else None
                case Zero(slots):
                    own = instruction if takes_part(self.slots[slots[0]].group) else None
                case Free(slots):
                    here = tuple(slot for slot in slots if takes_part(self.slots[slot].group))
                    own = Free(here) if here else None
            if own is not None:
                found[position >= self.first_update].append(own)
        return found
