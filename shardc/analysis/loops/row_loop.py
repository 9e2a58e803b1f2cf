"""Which rows of which stacked arrays the iterations of a counted loop read and write."""

from dataclasses import dataclass, field

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import CountedLoop, counted_loop
from shardc.analysis.values.facts import Values
from shardc.ir.constants import is_zero
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, is_inside, ops_of


@dataclass
class RowLoop:
    """A `stablehlo.while` that can be cut into pieces, and the rows that its iterations access.

    Attributes:
        loop: the op.
        counted: how it counts.
        forwards: iteration k accesses row k of the stacks; else row trips - 1 - k.
        reads: result of a `dynamic_slice` in the body that reads that row of a captured value ->
            the dim of the rows.
        writes: position of a carried stack that iterations only write that row of -> the dim of the
            rows.
        sums: positions of accumulators: they start at zero and are only added to.
    """

    loop: ir.Operation
    counted: CountedLoop
    forwards: bool = True
    reads: dict[ir.Value, int] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)

    @property
    def body(self) -> ir.Block:
        """The block that runs once per iteration."""
        return self.loop.regions[1].blocks[0]

    @property
    def independent(self) -> bool:
        """Whether iterations interact only through sums: a loop over data, not over layers."""
        handed = block_terminator(self.body).operands
        met = (*self.counted.counters, *self.writes, *self.sums)
        return all(
            p in met or before_barriers(value) == self.body.arguments[p]
            for p, value in enumerate(handed)
        )

    def uses_whole(self, value: ir.Value) -> bool:
        """Whether the loop uses a value from outside in other ways than row by row."""
        return any(
            not (len(op.results) == 1 and op.results[0] in self.reads and use.operand_number == 0)
            for use in value.uses
            if is_inside(op := use.owner.operation, self.loop)
        )

    def row_range(self, first: int, last: int) -> tuple[int, int]:
        """The rows of iterations first..last - 1, as a half-open range."""
        trips = self.counted.trips
        return (first, last) if self.forwards else (trips - last, trips - first)


def row_read(row: ir.Value) -> ir.Operation:
    """The `dynamic_slice` that reads a row."""
    op = defining_op(row)
    assert op is not None, "a row is read by an op"
    return op


def row_loop(loop: ir.Operation) -> RowLoop | None:
    """The rows that the iterations of `loop` access; None if it is not a counted loop.

    Iterations need not access rows: layers with shared weights, or decoded tokens, repeat the same
    work on the carried values.
    """
    counted = counted_loop(loop)
    if counted is None:
        return None
    found = RowLoop(loop, counted)
    touched = {}
    for found.forwards in (False, True):
        _find_rows(found)
        touched[found.forwards] = bool(found.reads), bool(found.writes)
    if touched[False] > touched[True]:
        found.forwards = False
        _find_rows(found)
    _find_sums(found)
    return found


def _find_rows(found: RowLoop) -> None:
    wanted = found.counted.rows(found.forwards)
    values = found.counted.values(found.body)
    found.reads, found.writes = {}, {}
    carried = set(found.body.arguments)
    for op in ops_of(found.body):
        if op.name == "stablehlo.dynamic_slice" and op.operands[0] not in carried:
            dim = _row_dim(op, list(op.operands)[1:], shape_of(op.results[0]), wanted, values)
            if dim is not None and not _made_inside(op.operands[0], found.body):
                found.reads[op.results[0]] = dim
    for p, value in enumerate(block_terminator(found.body).operands):
        argument, update = found.body.arguments[p], defining_op(value)
        if update is None or update.name != "stablehlo.dynamic_update_slice":
            continue
        whole, part, *starts = update.operands
        if whole == argument != part and update.block == found.body and used_alone(argument, value):
            dim = _row_dim(update, starts, shape_of(part), wanted, values)
            if dim is not None:
                found.writes[p] = dim


def _find_sums(found: RowLoop) -> None:
    for p, value in enumerate(block_terminator(found.body).operands):
        argument, op = found.body.arguments[p], defining_op(value)
        if op is None or op.name != "stablehlo.add" or p in found.counted.counters:
            continue
        added = argument in list(op.operands) and used_alone(argument, value)
        if added and is_zero(found.loop.operands[p]):
            found.sums.add(p)


def used_alone(argument: ir.Value, value: ir.Value) -> bool:
    """Whether a carried value, and the value that replaces it, each have one use inside."""
    return len(list(argument.uses)) == 1 and len(list(value.uses)) == 1


def before_barriers(value: ir.Value) -> ir.Value:
    """The value that barriers, such as those of `jax.checkpoint`, forward."""
    op = defining_op(value)
    while op is not None and op.name == "stablehlo.optimization_barrier":
        value = op.operands[ir.OpResult(value).result_number]
        op = defining_op(value)
    return value


def _made_inside(value: ir.Value, body: ir.Block) -> bool:
    op = defining_op(value)
    return op is not None and op.block == body


def _row_dim(
    op: ir.Operation,
    starts: list[ir.Value],
    sizes: tuple[int, ...],
    wanted: np.ndarray,
    values: Values,
) -> int | None:
    """The dim along which `op` accesses row `wanted[k]` in iteration k; it takes all other dims
    whole."""
    shape = shape_of(op.operands[0])
    if len(wanted) != 1:
        dim = block_dim(shape, starts, sizes, wanted, values)
        return dim if dim is not None and sizes[dim] == 1 else None
    dim = shape.index(1) if 1 in shape and sizes == shape else None
    return dim if dim is not None and values.are(starts[dim], wanted) else None


def block_dim(
    shape: tuple[int, ...],
    starts: list[ir.Value],
    sizes: tuple[int, ...],
    wanted: np.ndarray,
    values: Values,
) -> int | None:
    """The dim that is accessed in equal blocks, block `wanted[k]` in iteration k; None if there is
    none.

    Args:
        shape: of the whole.
        starts, sizes: of the slice that an iteration accesses.
        values: facts about the integers, per iteration.
    """
    partial = [d for d, (whole, part) in enumerate(zip(shape, sizes, strict=True)) if whole != part]
    if len(partial) != 1:
        return None
    dim = partial[0]
    even = shape[dim] == sizes[dim] * len(wanted)
    return dim if even and values.are(starts[dim], wanted * sizes[dim]) else None
