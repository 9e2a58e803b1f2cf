"""How a stage function computes what a slice needs of a value: recipes for the rewrite."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.loops.token_loop import TokenLoop
from shardc.analysis.slices.held_parts import Roles
from shardc.analysis.slices.squares.premises import Premise
from shardc.ir.tensor_types import shape_of
from shardc.rules.running_sums import Running


@dataclass(frozen=True)
class Make:
    """Run the op on these rows of its operands; `results` are the rows of all its results."""

    operands: tuple[Roles, ...]
    results: tuple[Roles, ...]


@dataclass(frozen=True)
class Narrow:
    """Slice more rows of the value."""

    source: Roles


@dataclass(frozen=True)
class Join:
    """Concatenate the rows that earlier slices have computed along `dim` and the slice's own."""

    source: Roles
    dim: int


@dataclass(frozen=True)
class Finish:
    """Run the op on rows of its operands: its result is what the slice contributes to its own and
    to earlier rows along `dim`. With the contributions of later slices added, the slice's own rows
    are complete; the others go on to the slice before."""

    operands: tuple[Roles, ...]
    dim: int


@dataclass(frozen=True)
class Carry:
    """Run the op, a running sum along `along`, on rows of its operands. The running total of the
    slices so far is added to each row, and the new total goes on to the next slice."""

    operands: tuple[Roles, ...]
    along: Running


@dataclass(frozen=True)
class Rerun:
    """Run the op, a running sum along `along`, on all rows so far. A backward pass that recomputes
    it visits the slices in reverse, so there is no earlier total to continue from."""

    operands: tuple[Roles, ...]
    along: Running


@dataclass(frozen=True)
class Iterate:
    """Run the iterations of a loop over tokens that belong to the slice, from the carried values at
    which the slice before ended.

    Attributes:
        captured: the rows of captured values.
    """

    loop: TokenLoop
    operands: tuple[Roles, ...]
    captured: tuple[tuple[ir.Value, Roles], ...]
    results: tuple[Roles, ...]


@dataclass(frozen=True)
class Take:
    """An argument, on these rows."""


@dataclass(frozen=True)
class Same:
    """The rows of an operand, which the op forwards."""

    position: int


Recipe = Take | Same | Make | Narrow | Join | Finish | Carry | Rerun | Iterate


@dataclass(frozen=True)
class Given:
    """A value that a function returns.

    Attributes:
        position: of the result.
        roles: the rows that a slice returns; None: one slice returns the whole value.
    """

    position: int
    value: ir.Value
    roles: Roles | None


@dataclass(frozen=True)
class Added:
    """What a function adds to an accumulator, or writes into it.

    Attributes:
        position: of the total among the results.
        op: computes the total.
        operand: position of the addend.
        roles: rows of the addend; None: one slice adds the whole value.
    """

    position: int
    op: ir.Operation
    operand: int
    roles: Roles | None


@dataclass
class FunctionSlices:
    """A stage function, for any slice.

    Attributes:
        recipes: of each value the needed rows, inputs before their users.
        joined: the function's own values whose rows later slices need.
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
        """Whether a step has to check premises of its slices."""
        return any(function.checked for function in self.functions.values())


def whole(value: ir.Value) -> Roles:
    """All rows of a value."""
    return (None,) * len(shape_of(value))
