"""How a stage function makes what a slice needs of a value: what a rewrite reads."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.loops.token_loop import TokenLoop
from shardc.analysis.slices.roles import Roles
from shardc.analysis.slices.squares.premises import Premise
from shardc.ir.tensor_types import shape_of
from shardc.rules.running_sums import Running


@dataclass(frozen=True)
class Make:
    """By the op of the value, on these rows of its operands; `results` says what all it makes."""

    operands: tuple[Roles, ...]
    results: tuple[Roles, ...]


@dataclass(frozen=True)
class Narrow:
    """Out of more rows of the value."""

    source: Roles


@dataclass(frozen=True)
class Join:
    """The rows that earlier slices have made along `dim`, before the slice's own."""

    source: Roles
    dim: int


@dataclass(frozen=True)
class Finish:
    """By the op, on rows of its operands: what the slice adds to its own and to earlier rows along
    `dim`. Added to what later slices have, its own rows are done; the others go on to the slice
    before."""

    operands: tuple[Roles, ...]
    dim: int


@dataclass(frozen=True)
class Carry:
    """By the op, a running sum along `along`, on rows of its operands. The sum to which the slices
    run so far have come is added to each of its rows, and goes on to the next slice."""

    operands: tuple[Roles, ...]
    along: Running


@dataclass(frozen=True)
class Rerun:
    """By the op, a running sum along `along`, on all rows so far: a backward pass that recomputes
    it meets the last slice first, so no slice has run that it could go on from."""

    operands: tuple[Roles, ...]
    along: Running


@dataclass(frozen=True)
class Iterate:
    """By the op, a loop along the tokens: a slice runs the iterations of its rows, from where the
    slice that ran before it ended.

    Attributes:
        captured: the rows of what the loop captures.
    """

    loop: TokenLoop
    operands: tuple[Roles, ...]
    captured: tuple[tuple[ir.Value, Roles], ...]
    results: tuple[Roles, ...]


@dataclass(frozen=True)
class Take:
    """It is an argument, on these rows."""


@dataclass(frozen=True)
class Same:
    """They are those of an operand: the op hands on what it is given."""

    position: int


Recipe = Take | Same | Make | Narrow | Join | Finish | Carry | Rerun | Iterate


@dataclass(frozen=True)
class Given:
    """A value that leaves a function.

    Attributes:
        position: of it among the results.
        roles: the rows that a slice gives; None: it is whole, and one slice gives it.
    """

    position: int
    value: ir.Value
    roles: Roles | None


@dataclass(frozen=True)
class Added:
    """What a function adds to an accumulator, or writes into it.

    Attributes:
        position: of the total among the results.
        op: makes the total.
        operand: position of what is added.
        roles: its rows; None: it is whole, and added by one slice.
    """

    position: int
    op: ir.Operation
    operand: int
    roles: Roles | None


@dataclass
class FunctionSlices:
    """A stage function, for any slice.

    Attributes:
        recipes: of each value the rows that are needed of it, what others are made of first.
        joined: the function's own values of which later slices need the rows.
        checked: premises about the function's values, and the rows of which each slice checks.
    """

    recipes: dict[ir.Value, dict[Roles, Recipe]] = field(default_factory=dict)
    given: list[Given] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    joined: dict[ir.Value, None] = field(default_factory=dict)
    checked: dict[Premise, Roles] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenSlices:
    """All functions of a microbatch, and the number of tokens that are cut."""

    length: int
    functions: dict[ir.Operation, FunctionSlices]

    @property
    def rests_on_premises(self) -> bool:
        """Whether a step has to check what the slices take for granted."""
        return any(function.checked for function in self.functions.values())


def whole(value: ir.Value) -> Roles:
    """All rows of a value."""
    return (None,) * len(shape_of(value))
