"""Why a program cannot be cut into a number of stages: a fact that planners read."""

from dataclasses import dataclass

from shardc.errors import StageError


@dataclass(frozen=True)
class StageRefusal:
    """The refusal of a number of stages.

    Attributes:
        most: maximum number of stages.
        message, help, code: of the error.
    """

    most: int
    message: str
    help: str
    code: str
    where: None = None

    def error(self) -> StageError:
        """The error for a user who requires this number of stages."""
        return StageError(self.message, help=self.help, code=self.code)


def too_few_layers(asked: int, found: int, loops: str = "") -> StageRefusal:
    """The refusal of more stages than the forward pass has layers.

    Args:
        loops: which loops count as one layer, and why; "" if none does.
    """
    return StageRefusal(
        max(found, 1),
        f"{asked} stages were asked for, but the forward pass has {found}"
        f" layer{'s' * (found != 1)} (matrix products and convolutions)"
        f"{'; ' * bool(loops)}{loops}",
        f"ask for at most {found} stages" if found > 1 else "use stages=1",
        "SHARDC-160",
    )


def nothing_to_cut(message: str, help: str) -> StageRefusal:
    """The refusal of more than one stage."""
    return StageRefusal(1, message, help, "SHARDC-161")
