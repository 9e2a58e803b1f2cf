"""The values of a function by number: who makes each, who uses it."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from jax.extend.mlir import ir

from shardc.ir.clone import captures
from shardc.ir.walk import body, ops, terminator

ARGUMENT = -1  # producer of a function argument


@dataclass(frozen=True)
class ValueGraph:
    """Def-use chains of one flat function; a value is its number, arguments first.

    Attributes:
        ops: the top-level ops in program order, terminator excluded.
        values: the MLIR value of each number.
        producer: for each value the position of the op that makes it, or `ARGUMENT`.
        uses: for each op the values it uses: its operands, then what its regions capture.
        results: for each op the values it makes.
        returned: the values that the function returns.
        num_args: how many arguments the function has.
    """

    ops: list[ir.Operation]
    values: list[ir.Value]
    producer: list[int]
    uses: list[tuple[int, ...]]
    results: list[tuple[int, ...]]
    returned: tuple[int, ...]
    num_args: int

    @cached_property
    def users(self) -> list[list[int]]:
        """For each value, positions of the ops that use it (once each)."""
        found: list[list[int]] = [[] for _ in self.values]
        for i, used in enumerate(self.uses):
            for v in dict.fromkeys(used):
                found[v].append(i)
        return found

    @cached_property
    def shapes(self) -> list[tuple[int, ...] | None]:
        """For each value its dims, or None where it is not a ranked tensor of known size."""
        return [static_shape(v.type) for v in self.values]

    def operand_at(self, v: int) -> int:
        """The operand that an identity op returns as result `v`."""
        i = self.producer[v]
        return self.uses[i][self.results[i].index(v)]

    def ancestors(self, roots: list[int], known: Collection[int] = ()) -> set[int]:
        """Every value that one of the `roots` depends on, the roots included; not through `known`
        values."""
        found = set(roots)
        stack = list(roots)
        while stack:
            v = stack.pop()
            i = self.producer[v]
            if i != ARGUMENT and v not in known:
                for u in self.uses[i]:
                    if u not in found:
                        found.add(u)
                        stack.append(u)
        return found


def value_graph(function: ir.Operation) -> ValueGraph:
    """Numbers the values of a function; linear in its size."""
    values: list[ir.Value] = list(body(function).arguments)
    number: dict[ir.Value, int] = {v: n for n, v in enumerate(values)}
    num_args = len(values)
    producer = [ARGUMENT] * num_args
    all_ops = ops(function)
    uses: list[tuple[int, ...]] = []
    results: list[tuple[int, ...]] = []
    for i, op in enumerate(all_ops):
        uses.append(tuple(number[v] for v in [*op.operands, *captures(op)]))
        made = []
        for result in op.results:
            number[result] = len(values)
            made.append(len(values))
            values.append(result)
            producer.append(i)
        results.append(tuple(made))
    returned = tuple(number[v] for v in terminator(function).operands)
    return ValueGraph(all_ops, values, producer, uses, results, returned, num_args)


def static_shape(type_: ir.Type) -> tuple[int, ...] | None:
    """Dims of a ranked tensor of static size, None for everything else (tokens, tuples)."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return None
    return tuple(type_.shape)
