"""Why a program cannot be cut into so many stages: a fact that planners read."""

from dataclasses import dataclass

from shardc.errors import StageError


@dataclass(frozen=True)
class StageRefusal:
    """Why there are not so many stages.

    Attributes:
        most: how many the program can be cut into.
        message, help, code: as of the error.
    """

    most: int
    message: str
    help: str
    code: str
    where: None = None

    def error(self) -> StageError:
        """The error for a user who asked for these stages and for nothing less."""
        return StageError(self.message, help=self.help, code=self.code)


def too_few_layers(asked: int, found: int) -> StageRefusal:
    """The refusal of more stages than the forward pass has layers."""
    return StageRefusal(
        max(found, 1),
        f"{asked} stages were asked for, but the forward pass has {found}"
        f" layer{'s' * (found != 1)} (matrix products and convolutions)",
        f"ask for at most {found} stages" if found > 1 else "use stages=1",
        "SHARDC-160",
    )


def nothing_to_cut(message: str, help: str) -> StageRefusal:
    """The refusal of any stages but one."""
    return StageRefusal(1, message, help, "SHARDC-161")
