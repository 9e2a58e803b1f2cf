"""Which part of a value a token slice holds."""

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """Which rows along one dim of tokens."""

    OWN = "own"  # those of the slice
    PAST = "past"  # those, and those of all slices before it


Roles = tuple[Role | None, ...]
"""For each dim of a value: None where it is whole."""


def so_far(roles: Roles) -> Roles:
    """Includes the rows of earlier slices."""
    return tuple(role and Role.PAST for role in roles)


class Kind(Enum):
    """How a slice holds a value."""

    WHOLE = "whole"  # the same for every slice
    CUT = "cut"  # each slice has its rows
    SUM = "sum"  # the values of the slices add up to the value
    TOTAL = "total"  # an accumulator, with what slices have added to it


@dataclass(frozen=True)
class State:
    """The kind of a value, and for a cut one the rows that each slice computes."""

    kind: Kind
    roles: Roles = ()

    def dim(self, role: Role) -> int | None:
        """The dim that has a role; None if none has."""
        return self.roles.index(role) if role in self.roles else None


WHOLE, SUM, TOTAL = State(Kind.WHOLE), State(Kind.SUM), State(Kind.TOTAL)
