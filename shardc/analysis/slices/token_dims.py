"""Finds the dim of the tokens in values that stages exchange, where it originates, and which loops
run along it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import row_read
from shardc.analysis.loops.token_loop import TokenLoop, token_loop
from shardc.analysis.slices.factors import adds_up, alone, passes
from shardc.analysis.slices.stage_values import StageValues
from shardc.ir.attributes import ARGUMENTS
from shardc.ir.clone import inputs
from shardc.ir.tensor_types import num_bytes, shape_of
from shardc.ir.walk import body, defining_op, ops
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import INDEX, is_argument, value_id
from shardc.rules.op_rule import OpRule

LOOP = "stablehlo.while"


@dataclass(frozen=True)
class TokenDim:
    """A dim that may be that of the tokens.

    Attributes:
        size: number of tokens.
        seeds: values computed only from arguments, and their dim of the tokens.
    """

    size: int
    seeds: Mapping[ir.Value, int]


def token_dims(values: StageValues) -> Iterator[TokenDim]:
    """Every dim of the largest value that the first stage sends, except that of the batch."""
    largest = _largest(values)
    if largest is None:
        return
    first = values.functions[0]
    batch = _batch_dims(values, first)
    made = _made_of_arguments(values, first)
    for dim, size in enumerate(shape_of(largest)):
        reached = _reached(values, largest, dim)
        if size > 1 and reached is not None and reached.isdisjoint(batch):
            yield TokenDim(size, {value: d for value, d in reached if value in made})


def recurrences(values: StageValues) -> set[ir.Operation]:
    """Loops along the tokens: with as many iterations as exchanged values may have tokens, reading
    rows of values that depend on the batch. Loops over layers read rows of the parameters, or of
    what other loops over layers have stacked; loops over heads read rows that still have all
    tokens."""
    found: set[ir.Operation] = set()
    sizes = _handed_sizes(values)
    for function in values.functions if sizes else ():
        made = {
            argument
            for argument, name in values.arguments(function)
            if name == INDEX or argument in values.sources
        }
        for op in ops(function):
            if not made.isdisjoint(inputs(op)):
                made.update(op.results)
            loop = token_loop(op) if op.name == LOOP else None
            if loop is None or loop.rows.counted.trips not in sizes:
                continue
            read = {row_read(row).operands[0] for row in loop.rows.reads}
            makers = [defining_op(values.sources.get(each, each)) for each in read]
            layers = any(maker and maker.name == LOOP and maker not in found for maker in makers)
            if read <= made and not layers and not _keeps_tokens(values, loop):
                found.add(op)
    return found


def _keeps_tokens(values: StageValues, loop: TokenLoop) -> bool:
    """Whether the rows that an iteration reads have all tokens: a loop over heads that are as many
    as the tokens."""
    largest = _largest(values)
    assert largest is not None, "there are sizes"
    read = {(row_read(row).operands[0], dim) for row, dim in loop.rows.reads.items()}
    for dim, size in enumerate(shape_of(largest)):
        if size != loop.rows.counted.trips:
            continue
        tokens = _connected(values, largest, dim)
        if read & tokens:
            return False
        if any((value, d) in tokens for value, _ in read for d in range(len(shape_of(value)))):
            return True
    return False


def _connected(values: StageValues, value: ir.Value, dim: int) -> set[tuple[ir.Value, int]]:
    """All dims that the ops before and behind a dim of a value identify with it."""
    copies: dict[ir.Value, list[ir.Value]] = {}
    for argument, source in values.sources.items():
        copies.setdefault(source, []).append(argument)
        copies.setdefault(argument, []).append(source)
    found = {(value, dim)}
    fresh = [(value, dim)]
    while fresh:
        each, at = fresh.pop()
        maker = defining_op(each)
        near = [use.owner.operation for use in each.uses] + ([] if maker is None else [maker])
        tied = [(copy, at) for copy in copies.get(each, ())]
        tied += [t for op in near for t in _tied(op, values.rules.get(op), (each, at))]
        fresh += set(tied) - found
        found.update(tied)
    return found


def _tied(
    op: ir.Operation, rule: OpRule | None, to: tuple[ir.Value, int]
) -> list[tuple[ir.Value, int]]:
    """The dims of operands and results that an op processes row by row with one of them."""
    if op.name == LOOP:
        loop = token_loop(op)
        if loop is None:
            return []
        written = [(op.results[p], dim) for p, dim in loop.rows.writes.items()]
        rows = [*loop.cut.items(), *written]
        return rows if to in rows else []
    sides = [*op.operands, *op.results]
    mappings = () if rule is None else (*rule.operands, *rule.results)
    if rule is None or len(mappings) != len(sides):
        return []
    pairs = [
        (value, dim, factors[0])
        for value, mapping in zip(sides, mappings, strict=True)
        for dim, factors in enumerate(mapping)
        if len(factors) == 1
    ]
    own = {f for value, dim, f in pairs if (value, dim) == to}
    free = {f for f in own if passes(op, rule, f) or adds_up(op, rule, f)}
    return [(value, dim) for value, dim, factor in pairs if factor in free]


def _handed_sizes(values: StageValues) -> set[int]:
    """The possible numbers of tokens."""
    largest = _largest(values) if values.functions else None
    return set() if largest is None else {size for size in shape_of(largest) if size > 1}


def _largest(values: StageValues) -> ir.Value | None:
    """The largest value that the first stage sends to another one."""
    taken = {
        source
        for function in values.functions[1:]
        if values.kind(function) is FunctionKind.FORWARD
        for argument, _ in values.arguments(function)
        if (source := values.sources.get(argument)) is not None
    }
    handed = [value for value, _ in values.results(values.functions[0]) if value in taken]
    return max(handed, key=num_bytes) if handed else None


def _reached(values: StageValues, value: ir.Value, dim: int) -> set[tuple[ir.Value, int]] | None:
    """The values from which rows along a dim come, and their dim; None if a loop hides them, as for
    the rows of a batch."""
    found = set()
    stack = [(value, dim)]
    while stack:
        each = stack.pop()
        if each in found:
            continue
        found.add(each)
        op = defining_op(each[0])
        if op is not None and op.name == LOOP:
            loop = token_loop(op)
            if loop is None or loop.rows.writes.get(ir.OpResult(each[0]).result_number) != each[1]:
                return None
            stack += loop.cut.items()
            continue
        rule = None if op is None else values.rules.get(op)
        if op is None or rule is None or len(rule.operands) != len(op.operands):
            continue
        factor = alone(rule, rule.results[ir.OpResult(each[0]).result_number], each[1])
        if factor is None or not passes(op, rule, factor):
            continue
        stack += [
            (operand, d)
            for operand, mapping in zip(op.operands, rule.operands, strict=True)
            for d, factors in enumerate(mapping)
            if factors == (factor,)
        ]
    return found


def _batch_dims(values: StageValues, function: ir.Operation) -> set[tuple[ir.Value, int]]:
    """The dims of arguments of which each microbatch has a part."""
    if ARGUMENTS not in values.module.attributes:
        return set()
    table = [ir.DictAttr(row) for row in ir.ArrayAttr(values.module.attributes[ARGUMENTS])]
    found = set()
    for argument, name in values.arguments(function):
        row = table[value_id(name).number] if is_argument(name) else None
        if row is not None and "batch_dim" in row:
            found.add((argument, int(ir.IntegerAttr(row["batch_dim"]).value) + 1))
    return found


def _made_of_arguments(values: StageValues, function: ir.Operation) -> set[ir.Value]:
    """Values that depend on more than constants and the number of the microbatch."""
    found = {argument for argument, name in values.arguments(function) if name != INDEX}
    for op in ops(function):
        if not found.isdisjoint(op.operands):
            found.update(op.results)
    return found - set(body(function).arguments)
