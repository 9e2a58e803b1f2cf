"""Proves a tape safe before it runs: every value exists when read, and is freed once."""

from collections.abc import Sequence

from shardc.errors import ShardcError
from shardc.plan.value_id import INDEX
from shardc.runtime.compiled_program import Program
from shardc.runtime.tape.instructions import Free, Instruction, Receive, Run, Send, Slot, Tape, Zero


def check_tape(tape: Tape, programs: Sequence[Program]) -> None:
    """Raises unless every instruction finds its inputs, and each buffer is freed once.

    Raises:
        ShardcError: SHARDC-266, a slot is read before it is filled or after it was freed or
            donated; freed twice or never; a message is received but not sent, or sent but not
            received.
    """
    state = _State(tape, programs)
    for instruction in tape.instructions:
        state.step(instruction)
    state.check_end()


class _State:
    """The filled slots and pending messages while the instructions are stepped through."""

    def __init__(self, tape: Tape, programs: Sequence[Program]) -> None:
        self.tape, self.programs = tape, programs
        self.filled = set(tape.filled_first)
        self.donated: set[int] = set()
        self.sent: set[int] = set()

    def step(self, instruction: Instruction) -> None:
        match instruction:
            case Run(_, program, args, results):
                self._read(instruction, args)
                positions = self.programs[program].donated
                self.donated.update({args[i] for i in positions} - set(results))
                self.filled.update(results)
            case Send(message):
                self._read(instruction, [a for a, _ in self.tape.messages[message].moves])
                self.sent.add(message)
            case Receive(message):
                if message not in self.sent:
                    raise _refusal(f"'{instruction}': nobody has sent it")
                self.sent.remove(message)
                self.filled.update(b for _, b in self.tape.messages[message].moves)
            case Zero(slots):
                self.filled.update(slots)
            case Free(slots):
                for slot in slots:
                    if slot not in self.filled:
                        raise _refusal(f"{said(self.tape.slots[slot])} is freed but does not exist")
                    self.filled.remove(slot)
                    self.donated.discard(slot)

    def check_end(self) -> None:
        if self.sent:
            raise _refusal(f"message {min(self.sent)} is sent and not received")
        kept = {slot for slot in self.tape.results if slot is not None}
        for slot in sorted(kept):
            if slot not in self.filled or slot in self.donated:
                raise _refusal(f"the result {said(self.tape.slots[slot])} is gone")
        for slot in sorted(self.filled - kept):
            if self.tape.slots[slot].value != INDEX:
                raise _refusal(f"{said(self.tape.slots[slot])} is never freed")

    def _read(self, instruction: Instruction, slots: Sequence[int]) -> None:
        for slot in slots:
            if slot not in self.filled or slot in self.donated:
                raise _refusal(
                    f"'{instruction}' reads {said(self.tape.slots[slot])}, which does not exist"
                )


def said(slot: Slot) -> str:
    """A slot in words."""
    number = slot.microbatch
    of = f" of {slot.move}{number}" if slot.move else f" of microbatch {number}"
    return f"'{slot.value}'{'' if number is None else of} on the devices of stage {slot.group}"


def _refusal(message: str) -> ShardcError:
    return ShardcError(
        message,
        code="SHARDC-266",
        help="this is a bug in the order of the step's instructions; report the plan and schedule",
    )
