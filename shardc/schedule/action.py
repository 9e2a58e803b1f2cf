"""The letters of a schedule: one action is one program of one stage run once."""

import re
from dataclasses import dataclass

from shardc.errors import ScheduleError

PROLOGUE = "P"
FORWARD = "F"
BACKWARD = "B"
WEIGHT = "W"
UPDATE = "U"

KINDS = {
    PROLOGUE: "once per step, before the microbatches",
    FORWARD: "forward of one microbatch",
    BACKWARD: "backward of one microbatch (input gradient only where the stage also has W)",
    WEIGHT: "weight gradient of one microbatch, where it is split from B",
    UPDATE: "once per step, after the microbatches (the optimizer)",
}
ONCE_PER_STEP = (PROLOGUE, UPDATE)

_TEXT = re.compile(r"(\d+)([A-Z])(\d*)")


@dataclass(frozen=True)
class Action:
    """One stage's forward, backward, ... of one microbatch; prints as `2F0`.

    Attributes:
        stage: 0 is the first of the pipeline.
        kind: a key of `KINDS`.
        microbatch: 0-based. Of P and U it is the round, and round 0 is not printed: `2P`, `2U`,
            `2U1`.
    """

    stage: int
    kind: str
    microbatch: int = 0

    def __str__(self) -> str:
        hidden = self.kind in ONCE_PER_STEP and self.microbatch == 0
        return f"{self.stage}{self.kind}" + ("" if hidden else str(self.microbatch))

    @staticmethod
    def parse(text: str) -> "Action":
        """Reads what `str` printed; ScheduleError (SHARDC-241) if `text` is no action."""
        match = _TEXT.fullmatch(text)
        if match is None or match[2] not in KINDS or not (match[3] or match[2] in ONCE_PER_STEP):
            raise ScheduleError(
                f"'{text}' is not an action",
                help="an action is stage, one of P F B W U, microbatch, such as 2F0 or 2U",
                code="SHARDC-241",
            )
        return Action(int(match[1]), match[2], int(match[3] or 0))


Schedule = tuple[tuple[Action, ...], ...]
"""Per device, in order, the actions that it runs; with one stage per device, per stage."""


def parse_schedule(texts: tuple[tuple[str, ...], ...]) -> Schedule:
    """The schedule whose printed actions `texts` are; ScheduleError (SHARDC-241)."""
    return tuple(tuple(Action.parse(text) for text in device) for device in texts)


def print_schedule(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """The printed actions of each device."""
    return tuple(tuple(str(action) for action in device) for device in schedule)
