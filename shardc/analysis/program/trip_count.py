"""How often a loop runs, where the program says so."""

from jax.extend.mlir import ir

from shardc.analysis.values.element_types import integer_range
from shardc.analysis.values.facts import number_of
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import last_op, made_by


def trip_count(loop: ir.Operation) -> int | None:
    """Iterations of a `stablehlo.while` that counts by a constant to a constant, else None.

    That is how `lax.scan` and `lax.fori_loop` with static bounds are lowered.
    """
    counted = count_of(loop)
    return None if counted is None else counted[0]


def count_of(loop: ir.Operation) -> tuple[int, int] | None:
    """Iterations, and the position of the counter among what is carried; None as `trip_count`.

    A counter that would wrap around before it reaches its bound, or when it does, has no count:
    `i <= 255` holds for each 8-bit number.
    """
    condition = loop.regions[0].blocks[0]
    done = last_op(condition).operands[0]
    compare = made_by(done)
    if compare is None or compare.name != "stablehlo.compare":
        return None
    counter, bound = compare.operands
    direction = str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")
    position = _argument(counter, condition)
    limit = number_of(bound)
    if position is None or limit is None:
        return None
    counted = _start_and_step(loop, position)
    trips = None if counted is None else _count(*counted, limit, direction)
    if trips is None or counts_from(loop, position, trips) is None:
        return None
    return trips, position


def counts_from(loop: ir.Operation, position: int, trips: int) -> tuple[int, int] | None:
    """Start and step of an integer that a loop carries at `position` and that only counts.

    It is start + k * step in iteration k and, behind the last one, start + trips * step: None where
    its type does not hold all of these.
    """
    counted = _start_and_step(loop, position)
    limits = integer_range(ir.RankedTensorType(loop.operands[position].type).element_type)
    if counted is None or limits is None:
        return None
    start, step = counted
    return counted if limits[0] <= start + trips * step <= limits[1] else None


def _start_and_step(loop: ir.Operation, position: int) -> tuple[int, int] | None:
    if shape_of(loop.operands[position]) != ():
        return None
    body = loop.regions[1].blocks[0]
    start = number_of(loop.operands[position])
    step = _step(last_op(body).operands[position], body, position)
    return None if start is None or not step else (start, step)


def _count(start: int, step: int, limit: int, direction: str) -> int | None:
    if direction == "LT" and step > 0:
        return len(range(start, limit, step))
    if direction == "LE" and step > 0:
        return len(range(start, limit + 1, step))
    if direction == "GT" and step < 0:
        return len(range(start, limit, step))
    if direction == "GE" and step < 0:
        return len(range(start, limit - 1, step))
    if direction == "NE" and (limit - start) % step == 0 and (limit - start) // step >= 0:
        return (limit - start) // step
    return None


def _step(value: ir.Value, body: ir.Block, position: int) -> int | None:
    """The constant that the body adds to its argument `position`."""
    op = made_by(value)
    if op is None or op.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = op.operands
    if op.name == "stablehlo.subtract":
        step = number_of(right) if _argument(left, body) == position else None
        return -step if step is not None else None
    if _argument(left, body) == position:
        return number_of(right)
    return number_of(left) if _argument(right, body) == position else None


def _argument(value: ir.Value, block: ir.Block) -> int | None:
    """Position of `value` among the arguments of `block`."""
    if not isinstance(value.owner, ir.Block) or value.owner != block:
        return None
    return int(ir.BlockArgument(value).arg_number)
