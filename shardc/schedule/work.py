"""What one step of a pipeline has to do, in whatever order: the actions and what each waits for."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.errors import ScheduleError
from shardc.schedule.action import BACKWARD, FORWARD, PROLOGUE, UPDATE, WEIGHT, Action


@dataclass(frozen=True)
class Work:
    """The actions of one step and their dependences.

    Attributes:
        num_stages: at least 1.
        num_microbatches: at least 1.
        backward: False for functions that only go forward (evaluation): no B, no W.
        split_backward: the backward is cut into B (input gradient) and W (weight gradient).
        prologue: each stage starts with one P.
        update_rounds: how many U each stage ends with; stages exchange values between rounds.
    Raises:
        ScheduleError: SHARDC-242, a count is out of range.
    """

    num_stages: int
    num_microbatches: int
    backward: bool = True
    split_backward: bool = False
    prologue: bool = True
    update_rounds: int = 1

    def __post_init__(self) -> None:
        for name, count, least in (
            ("stages", self.num_stages, 1),
            ("microbatches", self.num_microbatches, 1),
            ("update rounds", self.update_rounds, 0),
        ):
            if count < least:
                raise ScheduleError(
                    f"a schedule cannot have {count} {name}",
                    help=f"give {least} or more",
                    code="SHARDC-242",
                )

    @property
    def body_kinds(self) -> tuple[str, ...]:
        """What is done for each microbatch, in the order of its dependences."""
        if not self.backward:
            return (FORWARD,)
        return (FORWARD, BACKWARD, WEIGHT) if self.split_backward else (FORWARD, BACKWARD)

    @property
    def releasing_kind(self) -> str:
        """The kind that last reads a microbatch's activations on a stage."""
        return self.body_kinds[-1]

    def actions(self) -> Iterator[Action]:
        """Every action of the step, each once."""
        for stage in range(self.num_stages):
            if self.prologue:
                yield Action(stage, PROLOGUE)
            for kind in self.body_kinds:
                for microbatch in range(self.num_microbatches):
                    yield Action(stage, kind, microbatch)
            for number in range(self.update_rounds):
                yield Action(stage, UPDATE, number)

    def dependences(self, action: Action) -> Iterator[Action]:
        """The actions whose results `action` needs.

        F(s,k) needs P(s) and F(s-1,k); B(s,k) needs F(s,k) and B(s+1,k); W(s,k) needs B(s,k);
        U(s) needs the whole body of s; a later round of U needs the round before on every stage.
        """
        stage, microbatch = action.stage, action.microbatch
        match action.kind:
            case "F":
                if self.prologue:
                    yield Action(stage, PROLOGUE)
                if stage > 0:
                    yield Action(stage - 1, FORWARD, microbatch)
            case "B":
                yield Action(stage, FORWARD, microbatch)
                if stage + 1 < self.num_stages:
                    yield Action(stage + 1, BACKWARD, microbatch)
            case "W":
                yield Action(stage, BACKWARD, microbatch)
            case "U" if microbatch == 0:
                for number in range(self.num_microbatches):
                    yield Action(stage, self.releasing_kind, number)
            case "U":
                for other in range(self.num_stages):
                    yield Action(other, UPDATE, microbatch - 1)
