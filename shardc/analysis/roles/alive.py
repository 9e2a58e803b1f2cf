"""What is alive at the peak of a step, by the names of the model."""

from collections.abc import Callable, Iterator, Sequence

from jax.extend.mlir import ir

from shardc.analysis.roles.parts import Place
from shardc.ir.attributes import VALUE, result_attrs
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import defining_op, functions, planned_ops, symbol, terminator
from shardc.plan.account import Alive
from shardc.plan.layout import folded_name, pattern_of
from shardc.plan.predicted import Held
from shardc.plan.value_id import is_argument, value_id

MOST_GROUPS = 40  # of a stage; the rest is one more of each kind
_SUMS = frozenset({"stablehlo.add", "stablehlo.reduce"})
Made = tuple[str, int]  # a function, and the position of an op in it


def makers(module: ir.Operation) -> dict[str, Made]:
    """The op that makes each value that functions exchange; for a sum over microbatches, the op
    whose results are added up.
    """
    found: dict[str, Made] = {}
    for function in functions(module):
        positions = {op: n for n, op in enumerate(planned_ops(function))}
        for value, attrs in zip(terminator(function).operands, result_attrs(function), strict=True):
            op = defining_op(value)
            if op is not None and op.name in _SUMS:
                parts = filter(None, map(defining_op, op.operands))
                op = next((part for part in parts if part in positions), op)
            if op is not None and op in positions:
                found.setdefault(
                    str(ir.StringAttr(attrs[VALUE]).value), (symbol(function), positions[op])
                )
    return found


def what_is(op: ir.Operation) -> str:
    """`dot_general 512x128 float32`"""
    while op.name == "sdy.sharding_constraint" and (made := defining_op(op.operands[0])):
        op = made
    name = op.name.rpartition(".")[2]
    if not op.results:
        return name
    shape = "x".join(map(str, shape_of(op.results[0]))) or "scalar"
    return f"{name} {shape} {dtype_of(op.results[0])}"


class AliveValues:
    """Names the values that reports of stages say are alive.

    Args:
        held: by stage.
        names: of the user's arguments.
    """

    def __init__(
        self, module: ir.Operation, held: Sequence[Sequence[Held]], names: Sequence[str]
    ) -> None:
        self._held, self._names = held, names
        self._makers = makers(module)
        self._made = {self._maker(each) for own in held for each in own}
        self._ops: dict[Made, tuple[Place, str]] = {}

    def enter(self, function: str, position: int, place: Place, op: ir.Operation) -> None:
        """Notes the place of an op, if a value that it makes is alive."""
        if (function, position) in self._made:
            self._ops[function, position] = place, what_is(op)

    def groups(self, path_of: Callable[[Place], tuple[str, ...]]) -> tuple[Alive, ...]:
        """Values of a stage whose names differ only in numbers are one entry."""
        return tuple(
            each for stage in range(len(self._held)) for each in self._of_stage(stage, path_of)
        )

    def _of_stage(self, stage: int, path_of: Callable[[Place], tuple[str, ...]]) -> Iterator[Alive]:
        found: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
        for each in self._held[stage]:
            name, what = self._named(each, path_of)
            found.setdefault((each.kind, pattern_of(name), what), []).append((name, each.num_bytes))
        ranked = sorted(found.items(), key=lambda each: -sum(size for _, size in each[1]))
        for (kind, _, what), own in ranked[:MOST_GROUPS]:
            name = folded_name([name for name, _ in own])
            yield Alive(stage, kind, name, what, len(own), sum(size for _, size in own))
        rest: dict[str, list[int]] = {}
        for (kind, _, _), own in ranked[MOST_GROUPS:]:
            rest.setdefault(kind, []).extend(size for _, size in own)
        for kind, sizes in rest.items():
            yield Alive(stage, kind, "", "smaller ones", len(sizes), sum(sizes))

    def _named(self, each: Held, path_of: Callable[[Place], tuple[str, ...]]) -> tuple[str, str]:
        if each.value and is_argument(each.value):
            number = value_id(each.value).number
            return self._names[number] if number < len(self._names) else each.value, ""
        if (made := self._ops.get(self._maker(each))) is None:
            return "", "" if each.value else "buffer of a reshard"
        place, what = made
        return ".".join(path_of(place)), what

    def _maker(self, each: Held) -> Made:
        return self._makers.get(each.value, (each.function, each.op))
