"""What a stage function is for."""

from enum import StrEnum


class FunctionKind(StrEnum):
    """The kinds of stage functions, in the order in which a step runs them."""

    BEFORE = "before"  # what no microbatch changes, once
    FORWARD = "forward"
    BACKWARD = "backward"  # all of it, or what the stage before waits for
    WEIGHT = "weight"  # the rest of it
    UPDATE = "update"  # what needs sums over the microbatches, once, in rounds

    @property
    def order(self) -> int:
        """Position among the kinds of one stage and microbatch."""
        return _ORDER[self]

    @property
    def per_microbatch(self) -> bool:
        """Whether it runs for each microbatch, and not once per step."""
        return self not in (FunctionKind.BEFORE, FunctionKind.UPDATE)


_ORDER = {kind: order for order, kind in enumerate(FunctionKind)}
