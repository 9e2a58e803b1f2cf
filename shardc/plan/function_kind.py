"""The phases of a step, and the kinds of stage functions."""

from enum import StrEnum


class Phase(StrEnum):
    """When an op runs: once before the microbatches, once in each, or once after them."""

    BEFORE = "before"
    BODY = "body"
    AFTER = "after"


class FunctionKind(StrEnum):
    """The kinds of stage functions, in the order in which a step runs them."""

    BEFORE = "before"  # once per step: does not depend on the microbatch
    GATHER = "gather"  # as often as the schedule says: parameters, from the layout of the state
    FORWARD = "forward"
    BACKWARD = "backward"  # all of it, or the part that the previous stage needs
    WEIGHT = "weight"  # the rest of the backward
    REDUCE = "reduce"  # as often as the schedule says: sums of gradients, to a layout of their own
    UPDATE = "update"  # once per step, in rounds: needs sums over the microbatches

    @property
    def order(self) -> int:
        """Position among the kinds of one stage and microbatch."""
        return _ORDER[self]

    @property
    def per_microbatch(self) -> bool:
        """True if it runs once per microbatch, False if once per step or as a move."""
        return self in (FunctionKind.FORWARD, FunctionKind.BACKWARD, FunctionKind.WEIGHT)


_ORDER = {kind: order for order, kind in enumerate(FunctionKind)}
