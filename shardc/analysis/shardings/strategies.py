"""The strategies of an op: every even way to split its factors over the axes of a mesh."""

import functools
import itertools
import math
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.errors import PlanError
from shardc.ir.attributes import ASKED
from shardc.ir.constants import is_zero
from shardc.ir.user_shardings import UserSharding, print_user_sharding, read_user_sharding
from shardc.ir.walk import where
from shardc.plan.layout import Mesh, TensorSharding
from shardc.rules.allowed_factors import COUNTED_ONCE, splittable_factors, unshared_factors
from shardc.rules.op_rule import OpRule
from shardc.rules.partial_sums import keeps_partial
from shardc.rules.reducers import reducer

Axes = tuple[tuple[str, int], ...]

# Which operands of a linear op may be unreduced together; `keeps_partial` decides about each. Ops
# that are not listed get complete sums.
ALL_OPERANDS = "all"  # every operand
ONE_OPERAND = "one"  # exactly one
SOME_OPERANDS = "some"  # one or more; one device alone contributes each of the reduced ones
FIRST_OPERAND = "first"  # the first only
FIRST_TWO = "first two"  # the first and the second only
LINEAR = {
    "stablehlo.add": SOME_OPERANDS,
    "stablehlo.subtract": SOME_OPERANDS,
    "stablehlo.negate": ALL_OPERANDS,
    "stablehlo.transpose": ALL_OPERANDS,
    "stablehlo.reshape": ALL_OPERANDS,
    "stablehlo.broadcast_in_dim": ALL_OPERANDS,
    "stablehlo.convert": ALL_OPERANDS,
    "stablehlo.dynamic_slice": FIRST_OPERAND,
    "stablehlo.dynamic_update_slice": FIRST_TWO,
    "stablehlo.multiply": ONE_OPERAND,
    "stablehlo.divide": FIRST_OPERAND,
    "stablehlo.reduce": FIRST_OPERAND,
}


@dataclass(frozen=True)
class Strategy:
    """One way to run an op.

    Attributes:
        operands: the shardings that it requires of its operands.
        results: the shardings of its results; unreduced where each device has a partial sum.
        reduce_axes: axes over which it all-reduces its own result (a max over a split dim).
        num_shards: number of equal parts of the work.
    """

    operands: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    reduce_axes: tuple[str, ...]
    num_shards: int


@dataclass(frozen=True)
class Splitting:
    """How an op may be split, whatever the mesh.

    Attributes:
        rule: its sharding rule; None: the op is replicated.
        whole: the replicated strategy, the only one without a rule.
        allowed: for each factor whether axes may split it.
        shares: for each factor whether splitting it divides the work.
        by_sum: splitting a reduction factor leaves partial sums.
        together: sets of operands that may be unreduced together; empty if the op takes no
            partial sums.
        leaves_sums: some strategy may leave the result unreduced.
    """

    rule: OpRule | None
    whole: Strategy
    allowed: tuple[bool, ...] = ()
    shares: tuple[bool, ...] = ()
    by_sum: bool = True
    together: tuple[tuple[int, ...], ...] = ()
    leaves_sums: bool = False

    def on(self, mesh: Mesh) -> tuple[Strategy, ...]:
        """All strategies on `mesh`; the first is always the replicated one."""
        if self.rule is None:
            return (self.whole,)
        return _strategies(
            self.rule, self.allowed, self.shares, mesh.axes, self.by_sum, self.together
        )


def splitting(op: ir.Operation, rule: OpRule | None, unreduced: tuple[bool, ...]) -> Splitting:
    """How `op` may be split. An op without a rule or with empty tensors is replicated; a factor
    that the lowering does not allow is never split.

    Args:
        rule: sharding rule of the op.
        unreduced: for each operand, whether its producer can leave it unreduced.
    """
    shapes = [_shape(value) for value in op.operands]
    result_shapes = [_shape(value) for value in op.results]
    whole = Strategy(
        tuple(TensorSharding.replicated(len(shape)) for shape in shapes),
        tuple(TensorSharding.replicated(len(shape)) for shape in result_shapes),
        (),
        1,
    )
    if rule is None or any(0 in shape for shape in (*shapes, *result_shapes)):
        return Splitting(None, whole)
    allowed = tuple(
        bool(ok) and size > 1
        for ok, size in zip(splittable_factors(op, rule), rule.sizes, strict=True)
    )
    shares = tuple(not alone for alone in unshared_factors(op, rule))
    starts, by_sum = is_zero_for_a_loop(op), reduces_by_sum(op)
    together = ((),) if starts else _unreduced_together(op, unreduced)
    sums = by_sum and any(
        ok and any(rule.is_summed(r, f) for r in range(len(rule.results)))
        for f, ok in enumerate(allowed)
    )
    return Splitting(rule, whole, allowed, shares, by_sum, together, sums or bool(together))


def is_zero_for_a_loop(op: ir.Operation) -> bool:
    """Whether `op` makes the zeros that initialize an accumulator of a loop: also a partial sum."""
    if op.name not in ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"):
        return False
    users = (use.owner.operation.name for use in op.results[0].uses)
    return _sums(op.results[0]) and "stablehlo.while" in users and is_zero(op.results[0])


def can_start_sums(value: ir.Value) -> bool:
    """Whether a loop with the initial value `value` may carry partial sums: it is zero."""
    owner = value.owner
    return isinstance(owner, ir.Operation | ir.OpView) and is_zero_for_a_loop(owner.operation)


def identity_strategies(operand: ir.Value, mesh: Mesh, unreduced: bool) -> tuple[Strategy, ...]:
    """The strategies that forward `operand` unchanged: in any even sharding, replicated first, and
    also unreduced if `unreduced`. For barriers and loop-carried values."""
    return _identity_strategies(_shape(operand), mesh.axes, unreduced)


def user_strategies(operand: ir.Value, mesh: Mesh, asked: UserSharding) -> tuple[Strategy, ...]:
    """The strategies that forward `operand` in a sharding that the user's allows."""
    return _requested(_shape(operand), mesh.axes, asked)


def matching_request(op: ir.Operation, strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
    """The strategies whose result has the sharding that a hand-written plan asks for.

    Raises:
        PlanError: SHARDC-203, there is none.
    """
    asked = read_user_sharding(op.attributes[ASKED])
    found = tuple(each for each in strategies if asked.allows(each.results[0]))
    if not found:
        raise PlanError(
            f"'{op.name}' cannot produce its result as {print_user_sharding(asked)}",
            where=where(op),
            help="constrain the op after it, or request a sharding that its operands allow",
            code="SHARDC-203",
        )
    return found


def result_strategies(result: ir.Value, mesh: Mesh) -> tuple[Strategy, ...]:
    """The possible shardings of a result of a branch, whatever its operands."""
    return _result_strategies(_shape(result), mesh.axes)


def whole_strategy(operand: ir.Value, result: bool = True) -> tuple[Strategy, ...]:
    """The one strategy that replicates `operand`, and the result if there is one (`result`)."""
    return _whole_strategy(len(_shape(operand)), result)


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


@functools.lru_cache(maxsize=1 << 12)
def _identity_strategies(
    shape: tuple[int, ...], axes: Axes, unreduced: bool
) -> tuple[Strategy, ...]:
    return _forwarding(value_shardings(shape, axes, unreduced), axes)


@functools.lru_cache(maxsize=1 << 12)
def _requested(shape: tuple[int, ...], axes: Axes, asked: UserSharding) -> tuple[Strategy, ...]:
    return _forwarding(asked.only(value_shardings(shape, axes)), axes)


def _forwarding(shardings: tuple[TensorSharding, ...], axes: Axes) -> tuple[Strategy, ...]:
    sizes = dict(axes)
    return tuple(
        Strategy((each,), (each,), (), math.prod(sizes[axis] for axis in each.axes))
        for each in shardings
    )


@functools.lru_cache(maxsize=1 << 12)
def _result_strategies(shape: tuple[int, ...], axes: Axes) -> tuple[Strategy, ...]:
    return tuple(
        Strategy((), s.results, (), s.num_shards) for s in _identity_strategies(shape, axes, False)
    )


@functools.cache
def _whole_strategy(rank: int, result: bool) -> tuple[Strategy, ...]:
    whole = (TensorSharding.replicated(rank),)
    return (Strategy(whole, whole if result else (), (), 1),)


def reduces_by_sum(op: ir.Operation) -> bool:
    """Whether splitting a reduction factor of `op` leaves partial sums."""
    return op.name != "stablehlo.reduce" or reducer(op) == "add"


def _unreduced_together(
    op: ir.Operation, unreduced: tuple[bool, ...]
) -> tuple[tuple[int, ...], ...]:
    """The sets of operands that may be unreduced together and leave the result unreduced."""
    if op.name not in LINEAR or not any(unreduced) or not _sums(op.results[0]):
        return ()
    if op.name in COUNTED_ONCE:  # a reduced operand is zeroed on all devices but one
        zero = set(range(len(op.operands)))
    else:
        zero = {p for p, value in enumerate(op.operands) if is_zero(value)}
    found = _unreduced_patterns(LINEAR[op.name], unreduced)
    return tuple(each for each in found if keeps_partial(op, set(each), zero - set(each)))


def _sums(value: ir.Value) -> bool:
    """Whether partial sums of `value` are allowed: floats only."""
    element = str(ir.RankedTensorType(value.type).element_type)
    return element in ("f16", "bf16", "f32", "f64")


@functools.lru_cache(maxsize=1 << 14)
def _strategies(
    rule: OpRule,
    allowed: tuple[bool, ...],
    shares: tuple[bool, ...],
    axes: Axes,
    by_sum: bool,
    together: tuple[tuple[int, ...], ...],
) -> tuple[Strategy, ...]:
    found: dict[Strategy, None] = {}
    factors: list[int | None] = [None, *(f for f, ok in enumerate(allowed) if ok)]
    names = [name for name, _ in axes]
    sizes = dict(axes)
    for partial in _subsets(names) if together else [()]:
        rest = [name for name in names if name not in partial]
        for patterns in together if partial else [()]:
            for chosen in itertools.product(factors, repeat=len(rest)):
                on_factor: dict[int, tuple[str, ...]] = {}
                for name, factor in zip(rest, chosen, strict=True):
                    if factor is not None:
                        on_factor[factor] = (*on_factor.get(factor, ()), name)
                if any(
                    rule.sizes[f] % math.prod(sizes[a] for a in on) for f, on in on_factor.items()
                ):
                    continue
                found[_strategy(rule, on_factor, shares, sizes, by_sum, partial, patterns)] = None
    return tuple(found)


def _subsets(names: list[str]) -> list[tuple[str, ...]]:
    return [
        subset for count in range(len(names) + 1) for subset in itertools.combinations(names, count)
    ]


def _unreduced_patterns(linear: str, unreduced: tuple[bool, ...]) -> list[tuple[int, ...]]:
    """The sets of operands that are unreduced together."""
    if linear == ALL_OPERANDS:
        return [tuple(range(len(unreduced)))] if all(unreduced) else []
    if linear == SOME_OPERANDS:
        able = [i for i, ok in enumerate(unreduced) if ok]
        return [some for n in range(1, len(able) + 1) for some in itertools.combinations(able, n)]
    if linear == FIRST_OPERAND:
        return [(0,)] if unreduced[0] else []
    if linear == FIRST_TWO:
        return [(0, 1)] if all(unreduced[:2]) else []
    return [(i,) for i, ok in enumerate(unreduced) if ok]


def _strategy(
    rule: OpRule,
    on_factor: dict[int, tuple[str, ...]],
    shares: tuple[bool, ...],
    sizes: dict[str, int],
    by_sum: bool,
    partial: tuple[str, ...],
    unreduced_operands: tuple[int, ...],
) -> Strategy:
    def sharding(dims: tuple[tuple[int, ...], ...], sums: tuple[str, ...]) -> TensorSharding:
        return TensorSharding(
            tuple(tuple(a for f in dim for a in on_factor.get(f, ())) for dim in dims),
            tuple(sorted(sums)),
        )

    reduced = tuple(
        tuple(axis for factor, on in on_factor.items() if rule.is_summed(r, factor) for axis in on)
        for r in range(len(rule.results))
    )
    return Strategy(
        tuple(
            sharding(dims, partial if i in unreduced_operands else ())
            for i, dims in enumerate(rule.operands)
        ),
        tuple(
            sharding(dims, (*partial, *(sums if by_sum else ())))
            for dims, sums in zip(rule.results, reduced, strict=True)
        ),
        () if by_sum else reduced[0],
        math.prod(sizes[axis] for factor, on in on_factor.items() if shares[factor] for axis in on),
    )


@functools.lru_cache(maxsize=1 << 12)
def value_shardings(
    shape: tuple[int, ...], axes: Axes, unreduced: bool = False
) -> tuple[TensorSharding, ...]:
    """Every even sharding of a tensor, replicated first; unreduced ones too if `unreduced`.

    An empty tensor is replicated: JAX treats it as such, whatever sharding was requested.
    """
    if 0 in shape:
        return (TensorSharding.replicated(len(shape)),)
    found: dict[TensorSharding, None] = {}
    places = [None, *range(len(shape)), *([-1] if unreduced else [])]
    for chosen in itertools.product(places, repeat=len(axes)):
        dims: list[tuple[str, ...]] = [()] * len(shape)
        counts = [1] * len(shape)
        sums = []
        for (name, size), place in zip(axes, chosen, strict=True):
            if place is None:
                continue
            if place < 0:
                sums.append(name)
                continue
            dims[place] = (*dims[place], name)
            counts[place] *= size
        if all(size % count == 0 for size, count in zip(shape, counts, strict=True)):
            found[TensorSharding(tuple(dims), tuple(sorted(sums)))] = None
    return tuple(found)
