"""Counted loops: their trip count, and the value of each counter in every iteration."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.values.element_types import integer_range, kept_as
from shardc.analysis.values.facts import Values, number_of
from shardc.analysis.values.movement import LARGEST
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op


@dataclass(frozen=True)
class CountedLoop:
    """How a `stablehlo.while` counts. Positions index its carried values.

    Attributes:
        trips: iterations.
        counter: position of the integer that its condition tests.
        counters: position of each integer that only counts, `counter` among them -> its start and
            its step.
    """

    trips: int
    counter: int
    counters: Mapping[int, tuple[int, int]]

    @property
    def start(self) -> int:
        """Start of the counter."""
        return self.counters[self.counter][0]

    @property
    def step(self) -> int:
        """Step of the counter, not 0."""
        return self.counters[self.counter][1]

    def count_at(self, position: int, iteration: int) -> int:
        """Value of the integer carried at `position` in an iteration; `trips` is after the last."""
        start, step = self.counters[position]
        return start + step * iteration

    def rows(self, forwards: bool) -> np.ndarray:
        """The row that each iteration works on: its own number, counted from the end if not
        `forwards`."""
        k = np.arange(self.trips)
        return k if forwards else self.trips - 1 - k

    def values(self, body: ir.Block) -> Values:
        """Facts about the values of the loop's body, per iteration."""
        given, k = {}, np.arange(self.trips, dtype=np.uint64)
        for p, (start, step) in self.counters.items():
            element = ir.RankedTensorType(body.arguments[p].type).element_type
            # Computed modulo 2^64; the element type holds every count.
            counted = k * np.uint64(step % (1 << 64)) + np.uint64(start % (1 << 64))
            given[body.arguments[p]] = counted.astype(kept_as(element))
        return Values(given)

    def with_counters(self, positions: set[int]) -> "CountedLoop | None":
        """The same loop with the counters at `positions` alone; None if `counter` is not one."""
        if self.counter not in positions:
            return None
        kept = {p: counted for p, counted in self.counters.items() if p in positions}
        return replace(self, counters=kept)


def trip_count(loop: ir.Operation) -> int | None:
    """Iterations of a `stablehlo.while` with constant start, step and bound, else None.

    `lax.scan`, and `lax.fori_loop` with static bounds, lower to such loops.
    """
    counted = _trips_and_counter(loop)
    return None if counted is None else counted[0]


def counted_loop(loop: ir.Operation) -> CountedLoop | None:
    """How `loop` counts; None if `trip_count` is None or above `LARGEST`, the limit for enumerating
    the iterations."""
    counted = _trips_and_counter(loop)
    if counted is None or counted[0] > LARGEST:
        return None
    trips, counter = counted
    found = {p: _start_and_step(loop, p, trips) for p in range(len(loop.operands))}
    return CountedLoop(trips, counter, {p: c for p, c in found.items() if c is not None})


def _trips_and_counter(loop: ir.Operation) -> tuple[int, int] | None:
    """Trip count and position of the counter. A counter that would wrap around before or on
    reaching its bound has none: `i <= 255` holds for every 8-bit number."""
    condition = loop.regions[0].blocks[0]
    done = block_terminator(condition).operands[0]
    compare = defining_op(done)
    if compare is None or compare.name != "stablehlo.compare":
        return None
    counter, bound = compare.operands
    direction = str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")
    position = _argument(counter, condition)
    limit = number_of(bound)
    if position is None or limit is None:
        return None
    counted = _constant_start_and_step(loop, position)
    trips = None if counted is None else _count(*counted, limit, direction)
    if trips is None or _start_and_step(loop, position, trips) is None:
        return None
    return trips, position


def _start_and_step(loop: ir.Operation, position: int, trips: int) -> tuple[int, int] | None:
    """Start and step of the integer carried at `position`, if it is a counter.

    Its value is start + k * step in iteration k, and start + trips * step after the last one; None
    if its type does not hold all of these.
    """
    counted = _constant_start_and_step(loop, position)
    limits = integer_range(ir.RankedTensorType(loop.operands[position].type).element_type)
    if counted is None or limits is None:
        return None
    start, step = counted
    return counted if limits[0] <= start + trips * step <= limits[1] else None


def _constant_start_and_step(loop: ir.Operation, position: int) -> tuple[int, int] | None:
    if shape_of(loop.operands[position]) != ():
        return None
    body = loop.regions[1].blocks[0]
    start = number_of(loop.operands[position])
    step = _step(block_terminator(body).operands[position], body, position)
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
    op = defining_op(value)
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
