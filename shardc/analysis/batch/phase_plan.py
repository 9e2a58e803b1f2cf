"""What the split into microbatches emits: copies of ops, and the forms that values take."""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from shardc.analysis.batch.batch_state import Cut


class Phase(Enum):
    """When something runs: once before the microbatches, in each of them, once after them."""

    BEFORE = "before"
    BODY = "body"
    AFTER = "after"


@dataclass(frozen=True)
class Need:
    """A form in which a value is needed: in a phase, whole or (in the body) one part of it.

    For a partial sum the need of the body without a cut is the microbatch's own sum.
    """

    phase: Phase
    cut: Cut | None = None


BEFORE, BODY, AFTER = Need(Phase.BEFORE), Need(Phase.BODY), Need(Phase.AFTER)


class How(Enum):
    """How a needed form of a value comes about."""

    OP = "op"  # a copy of its op
    ARGUMENT = "argument"  # the argument as it is
    MERGE = "merge"  # a batch argument, its microbatches put together
    READ = "read"  # the microbatch of a batch argument
    SAME = "same"  # another form, as it is
    OPERAND = "operand"  # the same form of the operand of an identity
    SLICE = "slice"  # the microbatch's part of another form
    SUM = "sum"  # the sum of another form over the microbatches
    GIVEN = "given"  # the sum that an earlier run of the microbatches has made
    CONCAT = "concat"  # the parts of all microbatches put together


@dataclass(frozen=True)
class Source:
    """How a form of a value is made, and from which other form of it."""

    how: How
    other: Need | None = None


@dataclass(frozen=True)
class Copy:
    """One copy of an op: the forms of its operands (captured values included) and its results.

    A copy of an identity (an optimization barrier) takes only the operands at `positions`, and has
    as many results; other ops take all.
    """

    need: Need
    operands: tuple[Need, ...]
    results: tuple[Need, ...]
    positions: tuple[int, ...] | None = None


@dataclass
class PhasePlan:
    """What to emit: for each op its copies, for each value the forms of it.

    Attributes:
        copies: copies of each op; each has its own `need` (phase, and cut of the first result).
        forms: how each needed form of a value is made, in an order in which it can be.
    """

    copies: dict[int, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    forms: dict[int, dict[Need, Source]] = field(default_factory=lambda: defaultdict(dict))
