"""The batch axes of a step: classes of dims that can only be cut together.

Two dims are in one class if they share a splittable factor of some op's sharding rule: cutting the
op along one cuts it along the other. Control flow propagates dims by position.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import (
    INVARIANT,
    Cut,
    FactorCut,
    Kind,
    State,
    from_factor,
    to_factor,
)
from shardc.analysis.batch.step_program import CutValue, Program
from shardc.analysis.batch.strip_mining import strip_mine
from shardc.ir.clone import inputs
from shardc.ir.walk import CONTROL_FLOW, RETURN, block_terminator, defining_op, parent_of
from shardc.rules.op_rule import OpRule
from shardc.solver.interrupt import poll

_Split = tuple[
    OpRule, FactorCut, Kind
]  # an op split along a factor, and what that makes of results
_KEY_SHAPES = {(2,), (4,)}  # raw random keys (threefry, rbg), of ui32


@dataclass(frozen=True)
class BatchAxis:
    """One class of dims.

    Attributes:
        dims: argument -> its dim in the class (the outermost of several).
        size: of these dims.
        parallel_flops: FLOPs of the ops that cutting the class divides among microbatches.
        contracted: the part of them in ops that only reduce over the class.
        crossed: number of ops with two dims of the class, which cannot both be cut.
        in_state: whether a state argument has a dim in it: rows of caches, or features.
    """

    dims: Mapping[int, int]
    size: int
    parallel_flops: int
    contracted: int
    crossed: int
    in_state: bool

    @property
    def holds_features(self) -> bool:
        """Whether it holds features, not examples: products only contract it, and it is an inner
        dim or a dim of state."""
        last = self.in_state or max(self.dims.values()) > 0
        return last and 0 < self.parallel_flops == self.contracted

    def outside(self, args: Collection[int]) -> dict[int, int]:
        """Its dims in arguments other than `args`."""
        return {a: dim for a, dim in self.dims.items() if a not in args}


def batch_axes(program: Program, args: Iterable[int], state: Collection[int]) -> list[BatchAxis]:
    """The classes of the dims of `args`, the likeliest batch first.

    Scalars, raw random keys and dims of size 1 are never batch.
    """
    graph = program.graph
    number = {graph.values[a]: a for a in range(graph.num_args) if not _is_key(graph.values[a])}
    found: list[BatchAxis] = []
    known: set[CutValue] = set()
    for a in args:
        if graph.values[a] not in number:
            continue
        for dim, size in enumerate(graph.shapes[a] or ()):
            if size == 1 or (graph.values[a], Cut(dim)) in known:
                continue
            poll()
            reached = _DimClass(program, (graph.values[a], Cut(dim)))
            known |= reached.forms
            dims: dict[int, int] = {}
            for value, cut in reached.forms:
                if value in number and cut.outer == 1:
                    dims[number[value]] = min(cut.dim, dims.get(number[value], cut.dim))
            found.append(
                BatchAxis(
                    dict(sorted(dims.items())),
                    size,
                    reached.flops(),
                    reached.flops(contracted=True),
                    len(reached.crossed),
                    any(a in state for a in dims),
                )
            )
    return sorted(found, key=_rank)


def _rank(axis: BatchAxis) -> tuple[bool, bool, int, int, int, bool, int, int]:
    """Sort key, the likeliest batch first: not features, never crossed, most parallel FLOPs,
    outermost, outside the state, in few leaves, in leaves after the parameters."""
    return (
        axis.holds_features,
        axis.crossed > 0,
        -axis.parallel_flops,
        axis.crossed,
        max(axis.dims.values()),
        axis.in_state,
        len(axis.dims),
        -max(axis.dims),
    )


def _is_key(value: ir.Value) -> bool:
    if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
        return False
    return str(value.type.element_type) == "ui32" and tuple(value.type.shape) in _KEY_SHAPES


class _DimClass:
    """A class of dims, in values at the top level and inside control flow.

    A dim that comes from no argument (of a broadcast constant) does not connect its users: each can
    rematerialize its own part.

    Attributes:
        forms: values and where they are cut.
        crossed: first results of ops that have two dims of the class.
    """

    def __init__(self, program: Program, start: CutValue) -> None:
        self.program = program
        self.forms: set[CutValue] = set()
        self.crossed: set[ir.Value] = set()
        self._factors: dict[ir.Value, int] = {}  # by the first result of an op that is split
        self._kinds: dict[ir.Value, set[Kind]] = {}
        self._in_blocks: dict[ir.Value, ir.Operation] = {}  # loops that read the class in blocks
        stack = [start]
        while stack:
            form = stack.pop()
            if form not in self.forms:
                self.forms.add(form)
                stack += self._sources(form)
                if self._is_rooted(form):
                    stack += self._users(form)
            if not stack:
                stack += self._shared()

    def flops(self, contracted: bool = False) -> int:
        """FLOPs of the ops that the class splits, or of those that only reduce over it."""
        return sum(
            self.program.flops_of(result)
            for result, kinds in self._kinds.items()
            if not contracted or kinds == {Kind.PARTIAL}
        )

    def _sources(self, form: CutValue) -> Iterator[CutValue]:
        """Where the dim of a value comes from."""
        value, cut = form
        op = defining_op(value)
        if op is None:
            loop = parent_of(value)
            if loop.name == "stablehlo.while":
                yield from _carried_from(loop, ir.BlockArgument(value).arg_number, cut)
            return
        position = ir.OpResult(value).result_number
        if op.name == "stablehlo.while":
            yield from _carried_from(op, position, cut)
        elif op.name in CONTROL_FLOW:
            for region in op.regions:
                yield block_terminator(region.blocks[0]).operands[position], cut
        elif rule := self.program.rule_of(op):
            split = self._split(op, rule, rule.results, position, cut)
            if split is not None:
                yield from _parts(op.operands, rule.operands, split)

    def _users(self, form: CutValue) -> Iterator[CutValue]:
        """Where the users of a value have the dim."""
        value, cut = form
        for use in value.uses:
            op, position = use.owner.operation, use.operand_number
            if op.name == RETURN and op.parent is not None:
                op = op.parent.operation
                if op.name not in CONTROL_FLOW:
                    continue
            elif op.name in CONTROL_FLOW and op.name != "stablehlo.while":
                continue  # the branch index
            if op.name in CONTROL_FLOW:
                yield op.results[position], cut
                if op.name == "stablehlo.while":
                    yield from ((r.blocks[0].arguments[position], cut) for r in op.regions)
            elif rule := self.program.rule_of(op):
                split = self._split(op, rule, rule.operands, position, cut)
                if split is None:
                    continue
                result, factor = op.results[0], split[1].factor
                if self._factors.setdefault(result, factor) != factor:
                    self.crossed.add(result)
                self._kinds.setdefault(result, set()).add(split[2])
                yield from _parts(op.operands, rule.operands, split)
                yield from _parts(op.results, rule.results, split)

    def _split(
        self,
        op: ir.Operation,
        rule: OpRule,
        mappings: Sequence[tuple[tuple[int, ...], ...]],
        position: int,
        cut: Cut,
    ) -> _Split | None:
        """How an op is split if one of its values is cut; None if it needs the whole value."""
        if position >= len(mappings):
            return None  # captured by a region
        factor = to_factor(rule, mappings[position], cut)
        kind = self.program.may_cut_op(op, rule, factor) if factor else None
        if factor is not None and kind is not None:
            return rule, factor, kind
        loop = op.parent and op.parent.operation
        if loop and op.name == "stablehlo.dynamic_slice" and loop.name == "stablehlo.while":
            self._in_blocks[loop.results[0]] = loop
        return None

    def _is_rooted(self, form: CutValue) -> bool:
        """Whether a dim comes from an argument of the step."""
        known = self.program.rooted
        if form in known:
            return known[form]
        users: dict[CutValue, list[CutValue]] = {form: []}
        stack, roots = [form], []
        while stack:
            each = stack.pop()
            if known.get(each) or self.program.is_argument(each[0]):
                roots.append(each)
            elif each not in known:
                for source in self._sources(each):
                    if source not in users:
                        users[source] = []
                        stack.append(source)
                    users[source].append(each)
        known.update((each, False) for each in users if each not in known)
        while roots:
            each = roots.pop()
            known[each] = True
            roots += [user for user in users[each] if not known[user]]
        return known[form]

    def _shared(self) -> Iterator[CutValue]:
        """Results of loops over blocks of the class whose iterations can be strip-mined."""
        loops, self._in_blocks = self._in_blocks, {}
        for loop in loops.values():
            used = set(inputs(loop))
            cuts = {value: cut for value, cut in self.forms if value in used}
            states = {v: State(Kind.VARYING, 0, cuts[v]) if v in cuts else INVARIANT for v in used}
            found = strip_mine(loop, [states[v] for v in loop.operands], states)
            if found is not None:
                self._kinds[loop.results[0]] = {Kind.VARYING}
                for value, state in zip(loop.results, found.carries, strict=True):
                    if state.cut is not None:
                        yield value, state.cut


def _carried_from(loop: ir.Operation, position: int, cut: Cut) -> Iterator[CutValue]:
    """The initial value and the yielded value of a loop-carried value."""
    yield loop.operands[position], cut
    yield block_terminator(loop.regions[1].blocks[0]).operands[position], cut


def _parts(
    values: Sequence[ir.Value], mappings: Sequence[tuple[tuple[int, ...], ...]], split: _Split
) -> Iterator[CutValue]:
    """The values of an op that splitting it cuts."""
    rule, factor, _ = split
    for value, mapping in zip(values, mappings, strict=False):  # what regions capture has none
        cut = from_factor(rule, mapping, factor)
        if cut is not None:
            yield value, cut
