"""Which ops of a stage's backward other stages wait for, and which can be delayed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.flops import heavy_flops, op_cost
from shardc.analysis.program.fusion import is_fused
from shardc.analysis.program.op_work import op_seconds
from shardc.analysis.stages.compared_values import (
    compared_floats,
    kept_for_loops,
    torn_extremes,
)
from shardc.cost.model import CostModel
from shardc.ir.attributes import STAGE, VALUE, arg_attrs, function_kind, get_int, result_attrs
from shardc.ir.clone import inputs
from shardc.ir.constants import MADE_OF_NOTHING
from shardc.ir.tensor_types import dtype_of, num_bytes
from shardc.ir.walk import body, defining_op, ops, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.priced_work import Work
from shardc.solver.pipeline.kept_values import Maker, kept_values

PER_SECOND = 1e12  # costs are counted in picoseconds


@dataclass(frozen=True)
class BackwardSplit:
    """The two parts of a backward function.

    Attributes:
        urgent: the ops that the awaited results depend on, in program order.
        rest: the ops of the other results, including urgent ops that are recomputed.
        urgent_results, rest_results: positions among the results of the function.
        kept: results of urgent ops that the rest reads.
        tied: whether results that no other stage awaits need a product of the urgent part.
    """

    urgent: list[ir.Operation]
    rest: list[ir.Operation]
    urgent_results: list[int]
    rest_results: list[int]
    kept: list[ir.Value]
    tied: bool


def backward_splits(
    asked: Sequence[ir.Operation], functions: Sequence[ir.Operation], model: CostModel
) -> dict[ir.Operation, BackwardSplit]:
    """How to split the backward functions among `asked`; other stages wait for the urgent parts.

    Args:
        functions: all stage functions.
    """
    return {
        each: split_backward(each, awaited_results(each, functions), model)
        for each in asked
        if function_kind(each) is FunctionKind.BACKWARD
    }


def has_weight_products(splits: Iterable[BackwardSplit]) -> bool:
    """Whether some product can be delayed on a stage with urgent ops, or none would have to be:
    such stages have no weights. Otherwise splitting the backward gains nothing."""
    behind = [split for split in splits if split.urgent]
    delayed = any(heavy_flops(op) for split in behind for op in split.rest)
    return delayed or not any(split.tied for split in behind)


def awaited_results(function: ir.Operation, others: Sequence[ir.Operation]) -> set[int]:
    """Positions of the results that other stages read for the same microbatch."""
    stage = get_int(function, STAGE)
    ids = {
        attrs[VALUE]
        for other in others
        if get_int(other, STAGE) != stage and _is_of_microbatch(other)
        for attrs in arg_attrs(other)
    }
    return {r for r, attrs in enumerate(result_attrs(function)) if attrs[VALUE] in ids}


def _is_of_microbatch(function: ir.Operation) -> bool:
    kind = function_kind(function)
    return kind is not None and kind.per_microbatch


def split_backward(
    function: ir.Operation, awaited: Collection[int], model: CostModel
) -> BackwardSplit:
    """Splits a backward function by dependence.

    A value that both parts need is stashed or rematerialized by the rest, whichever takes less time
    (a stashed value is written and read; ops that XLA fuses move nothing).

    Args:
        awaited: positions of the results that other stages' functions of the microbatch read.
    """
    returned = list(terminator(function).operands)
    urgent = makers_of([returned[r] for r in awaited])
    # Other results of urgent ops belong to the urgent part.
    first = [r for r, value in enumerate(returned) if r in awaited or defining_op(value) in urgent]
    later = sorted(set(range(len(returned))) - set(first))
    late = makers_of([returned[r] for r in later])
    others = makers_of([value for r, value in enumerate(returned) if r not in awaited])
    shared = [op for op in ops(function) if op in urgent and op in late]
    wanted = {value for op in late - urgent for value in inputs(op)}
    wanted.update(returned[r] for r in later)
    arguments: dict[ir.Value, int] = dict.fromkeys(body(function).arguments, 1)
    kept = kept_between(arguments, shared, wanted, model) - set(arguments)
    kept = one_time(kept, late, shared, wanted)
    again = makers_of(wanted, kept)
    read = {value for op in again for value in inputs(op)} | wanted
    return BackwardSplit(
        [op for op in ops(function) if op in urgent],
        [op for op in ops(function) if op in again],
        first,
        later,
        [value for op in shared for value in op.results if value in kept and value in read],
        any(heavy_flops(op) for op in others & urgent),
    )


def one_time(
    kept: Collection[ir.Value],
    late: Collection[ir.Operation],
    shared: Sequence[ir.Operation],
    wanted: Collection[ir.Value],
) -> set[ir.Value]:
    """The values to keep so that no comparison mixes an original with a rematerialized copy.

    Adds to `kept` the results of `shared` ops that `late` ops compare with others: both sides are
    originals, and so are floats that a kept loop hands on. Removes maxima of rematerialized values:
    both sides are copies.
    """
    found = set(kept)
    for op in late:
        makers = compared_floats(op, lambda _: False).makers
        if len(makers) > 1:
            found.update(value for each in shared if each in makers for value in each.results)
    while True:
        again = makers_of(wanted, found)
        more = {value for op in kept_for_loops(shared, again) for value in op.results} - found
        torn = torn_extremes(shared, again)
        less = {value for op in torn for value in op.results if value in found}
        if not more and not less:
            return found
        found = (found | more) - less


def makers_of(values: Collection[ir.Value], given: Collection[ir.Value] = ()) -> set[ir.Operation]:
    """The ops that `values` depend on, back to the arguments and the `given` values."""
    found: set[ir.Operation] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        maker = None if value in given else defining_op(value)
        if maker is not None and maker not in found:
            found.add(maker)
            todo += inputs(maker)
    return found


def kept_between(
    given: Mapping[ir.Value, int],
    shared: Sequence[ir.Operation],
    wanted: Collection[ir.Value],
    model: CostModel,
) -> set[ir.Value]:
    """The values to stash for the rest; it rematerializes the others that it needs.

    Never stashed is what follows from constants alone, such as the zero that a sum starts from:
    the rest could not know it, and would be sharded as if it were any number.

    Args:
        given: values that exist before `shared` runs -> number of passes through memory if the rest
            reads it; values that are neither here nor results of `shared` cost nothing.
        shared: ops, in program order, whose results are stashed or rematerialized.
        wanted: values that the rest needs.
    """
    made = [value for op in shared for value in op.results]
    number = {value: i for i, value in enumerate([*given, *made])}
    times = [*given.values(), *[2] * len(made)]
    makers = [
        Maker(
            tuple(number[value] for value in inputs(op) if value in number),
            tuple(number[value] for value in op.results),
            _running(op, model),
        )
        for op in shared
    ]
    never = sum(maker.redo for maker in makers) + 1
    known = _known(shared)
    costs = [
        never if value in known else _moving(value, n, model)
        for value, n in zip(number, times, strict=True)
    ]
    chosen = kept_values(costs, makers, [number[value] for value in number if value in wanted])
    return {value for value, i in number.items() if i in chosen}


def _known(shared: Sequence[ir.Operation]) -> set[ir.Value]:
    """Constants, and what ops that are fused make of them alone."""
    found: set[ir.Value] = set()
    for op in shared:
        if op.name in MADE_OF_NOTHING or (
            is_fused(op) and inputs(op) and found.issuperset(inputs(op))
        ):
            found.update(op.results)
    return found


def _moving(value: ir.Value, times: int, model: CostModel) -> int:
    """Picoseconds to move a value through memory `times` times."""
    return round(PER_SECOND * model.op_s(Work(dtype_of(value), 0, times * num_bytes(value))))


def _running(op: ir.Operation, model: CostModel) -> int:
    """Picoseconds to rematerialize an op's results."""
    cost = op_cost(op)
    moved = 0 if is_fused(op) else cost.bytes_read + cost.bytes_written
    return max(round(PER_SECOND * model.op_s(Work(dtype_of(op.results[0]), cost.flops, moved))), 1)


def half_seconds(
    function: ir.Operation, split: BackwardSplit, model: CostModel, devices: int
) -> tuple[float, float]:
    """Seconds of the urgent part of a backward and of the rest; both move what is kept between
    them, unless it is in memory anyway."""
    times = op_seconds(function, model, devices)
    inside = [value for value in split.kept if _stays_in_a_kernel(value)]
    moved_s = sum(model.op_s(Work(dtype_of(v), 0.0, num_bytes(v) / devices)) for v in inside)
    urgent, rest = (
        sum(times.get(op, 0.0) for op in part) + moved_s for part in (split.urgent, split.rest)
    )
    return urgent, rest


def _stays_in_a_kernel(value: ir.Value) -> bool:
    maker = defining_op(value)
    return maker is not None and all(
        map(is_fused, (maker, *(use.owner.operation for use in value.uses)))
    )
