"""What the microbatch split emits: copies of ops, and the forms in which values exist."""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from shardc.analysis.batch.batch_state import Cut
from shardc.plan.function_kind import Phase


@dataclass(frozen=True)
class Form:
    """A form in which a value exists in a phase: the whole value or, in the body, one part of it.

    The uncut body form of a partial sum is the microbatch's own addend.
    """

    phase: Phase
    cut: Cut | None = None


BEFORE, BODY, AFTER = Form(Phase.BEFORE), Form(Phase.BODY), Form(Phase.AFTER)


class Method(Enum):
    """How a form of a value is materialized."""

    CLONE = "clone"  # a result of a copy of the defining op
    ARGUMENT = "argument"  # the argument itself
    MERGE = "merge"  # a batch argument, reshaped back to the whole batch
    READ = "read"  # the current microbatch of a batch argument
    ALIAS = "alias"  # another form, unchanged
    FORWARD = "forward"  # the same form of the operand that an identity op forwards
    SLICE = "slice"  # the current microbatch's part of another form
    SUM = "sum"  # another form, summed over the microbatches
    EARLIER_SWEEP = "earlier_sweep"  # what an earlier sweep has accumulated
    CONCAT = "concat"  # the parts of all microbatches, concatenated


@dataclass(frozen=True)
class Materialization:
    """How a form of a value is made, and from which other form of the value, if from one."""

    method: Method
    source: Form | None = None


@dataclass(frozen=True)
class Copy:
    """One copy of an op: its own form, and the forms of its operands (captures last) and results.

    A copy of an identity op (an optimization barrier) keeps only the operands and results at
    `positions`; copies of other ops keep all.
    """

    form: Form
    operands: tuple[Form, ...]
    results: tuple[Form, ...]
    positions: tuple[int, ...] | None = None


@dataclass
class PhasePlan:
    """What to emit.

    Attributes:
        copies: op -> its copies; the form of a copy is its phase and the cut of its first result.
        forms: value -> how to materialize each required form, sources before their users.
    """

    copies: dict[int, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    forms: dict[int, dict[Form, Materialization]] = field(default_factory=lambda: defaultdict(dict))
