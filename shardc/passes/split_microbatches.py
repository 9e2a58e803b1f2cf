"""Turn a step over the whole batch into a body that runs once per microbatch, and the rest."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch_split import split_step
from shardc.analysis.batch_state import Cut
from shardc.analysis.microbatch import BatchFlow
from shardc.analysis.phases import BEFORE, Copy, How, Need, Phase, PhasePlan, Source, plan_phases
from shardc.analysis.state import STATE_RESULT
from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    PHASE,
    arg_attrs,
    int_attr,
    set_arg_attrs,
    str_attr,
)
from shardc.ir.clone import clone_op
from shardc.ir.local_ops import make_local
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, ops, terminator


@dataclass(frozen=True)
class SplitMicrobatches(Pass):
    """Splits the main function into phases before, during and after `count` microbatches.

    Every op gets `shardc.phase`: "before" and "after" run once per step on whole values, "body" runs
    once per microbatch on parts of the batch. A batch argument becomes [.., count, size / count, ..]
    and is read at `shardc.microbatch_index`; what leaves the body goes through `shardc.accumulate`,
    which adds up or concatenates. The results are those of the whole batch, up to the order of
    additions. Runs once per module: a split module is left alone.

    Attributes:
        count: number of microbatches; must divide the batch dims.
        batch_args: positions of the batch arguments; empty: found by analysis.
    """

    name = "shardc-split-microbatches"
    count: int = 1
    batch_args: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        if NUM_MICROBATCHES in module.attributes:
            return
        step = split_step(module, self.count, self.batch_args or None)
        function = main_function(module)
        module.attributes[NUM_MICROBATCHES] = int_attr(self.count)
        _Emitter(function, step.flow, plan_phases(step.flow), self.count).emit()
        attrs = arg_attrs(function)
        for arg, result in step.state.items():
            attrs[arg][STATE_RESULT] = int_attr(result)
        for arg, dim in step.flow.batch_args.items():
            attrs[arg][BATCH_DIM] = int_attr(dim)
            attrs[arg].pop("tf.aliasing_output", None)  # the microbatches have another type
        set_arg_attrs(function, attrs)


class _Emitter:
    """Writes the planned copies behind each other and drops the ops they replace."""

    def __init__(
        self, function: ir.Operation, flow: BatchFlow, plan: PhasePlan, count: int
    ) -> None:
        self.function = function
        self.flow = flow
        self.graph = flow.program.graph
        self.plan = plan
        self.count = count
        self.env: dict[tuple[int, Need], ir.Value] = {}
        self.index: ir.Value | None = None
        # Ops of a phase go before its mark; the marks stand in front of the old ops.
        with ir.InsertionPoint.at_block_begin(body(function)), ir.Location.unknown():
            self.marks = {phase: self._mark() for phase in Phase}

    def _mark(self) -> ir.Operation:
        scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        zero = ir.DenseElementsAttr.get_splat(scalar, _i32(0))
        return self._create("stablehlo.constant", [scalar], [], {"value": zero})

    def emit(self) -> None:
        """Rewrites the function."""
        old = ops(self.function)[len(self.marks) :]
        for a in range(self.graph.num_args):
            self._forms(a)
        for i in range(len(self.graph.ops)):
            for copy in self.plan.copies.get(i, []):
                self._copy(i, copy)
            for v in self.graph.results[i]:
                self._forms(v)
        last = terminator(self.function)
        for position, v in enumerate(self.graph.returned):
            last.operands[position] = self.env[v, Need(Phase.AFTER)]
        for op in [*reversed(old), *self.marks.values()]:
            op.erase()
        self._retype()

    def _retype(self) -> None:
        """Gives the batch arguments their type, and the function that of its arguments."""
        arguments = body(self.function).arguments
        for a, dim in self.flow.batch_args.items():
            arguments[a].set_type(self._split_type(a, dim))
        old = ir.FunctionType(ir.TypeAttr(self.function.attributes["function_type"]).value)
        new = ir.FunctionType.get([a.type for a in arguments], old.results)
        self.function.attributes["function_type"] = ir.TypeAttr.get(new)

    def _split_type(self, v: int, dim: int) -> ir.Type:
        shape = self._shape(v)
        return self._type(
            v, [*shape[:dim], self.count, shape[dim] // self.count, *shape[dim + 1 :]]
        )

    # ---- ops ----

    def _copy(self, i: int, copy: Copy) -> None:
        op, used, results = self.graph.ops[i], self.graph.uses[i], self.graph.results[i]
        if copy.positions is not None:
            used = tuple(used[p] for p in copy.positions)
            results = tuple(results[p] for p in copy.positions)
        new = [self.env[u, need] for u, need in zip(used, copy.operands, strict=True)]
        with self._at(copy.need.phase), op.location:
            if copy.positions is not None:
                made = self._create(op.name, [n.type for n in new], new, _attributes(op))
            elif len(used) == len(op.operands):
                types = [
                    self._part_type(v, need.cut)
                    for v, need in zip(results, copy.results, strict=True)
                ]
                made = make_local(op, new, types)
            else:
                made = clone_op(
                    op, {self.graph.values[u]: n for u, n in zip(used, new, strict=True)}
                )
        made.attributes[PHASE] = str_attr(copy.need.phase.value)
        for v, need, value in zip(results, copy.results, made.results, strict=True):
            self.env[v, need] = value

    def _forms(self, v: int) -> None:
        for need, source in self.plan.forms.get(v, {}).items():
            if source.how is How.OPERAND:
                i = self.graph.producer[v]
                operand = self.graph.uses[i][self.graph.results[i].index(v)]
                self.env[v, need] = self.env[operand, need]
            elif source.how is not How.OP:
                with self._at(need.phase), self.graph.values[v].location:
                    self.env[v, need] = self._form(v, need, source)

    def _form(self, v: int, need: Need, source: Source) -> ir.Value:
        value = self.graph.values[v]
        match source.how:
            case How.ARGUMENT:
                return value
            case How.MERGE:
                return self._reshape(value, self._shape(v), need.phase)
            case How.READ:
                assert need.cut is not None
                split = list(ir.ShapedType(self._split_type(v, need.cut.dim)).shape)
                return self._part(v, value, need.cut, split, need.cut.dim)
        assert source.other is not None
        other = self.env[v, source.other]
        match source.how:
            case How.SAME:
                return other
            case How.SLICE:
                assert need.cut is not None
                return self._slice(v, other, need.cut)
            case How.SUM:
                return self._accumulate(other, other.type, "sum", None)
        assert source.how is How.CONCAT and source.other.cut is not None
        return self._concat(v, other, source.other.cut)

    def _slice(self, v: int, whole: ir.Value, cut: Cut) -> ir.Value:
        """The microbatch's part of a whole value: seen as [outer, M, rest], taken at the index."""
        if self.count == 1:
            return whole
        shape = self._shape(v)
        rest = shape[cut.dim] // cut.outer // self.count
        split = [*shape[: cut.dim], cut.outer, self.count, rest, *shape[cut.dim + 1 :]]
        seen = self._reshape(whole, split, Phase.BODY)
        return self._part(v, seen, cut, split, cut.dim + 1)

    def _part(
        self, v: int, split: ir.Value, cut: Cut, shape: list[int], micro_dim: int
    ) -> ir.Value:
        """Entry `index` of dim `micro_dim` of `split` (of that shape), in the part's own shape."""
        sizes = [1 if d == micro_dim else size for d, size in enumerate(shape)]
        zero = self._zero() if len(shape) > 1 else None
        index = self._index()
        starts = [index if d == micro_dim else zero for d in range(len(shape))]
        attributes = {"slice_sizes": ir.DenseI64ArrayAttr.get(sizes)}
        taken = self._make(
            "stablehlo.dynamic_slice",
            self._type(v, sizes),
            [split, *starts],
            Phase.BODY,
            attributes,
        )
        return self._reshape(taken, list(cut.part(tuple(self._shape(v)), self.count)), Phase.BODY)

    def _concat(self, v: int, part: ir.Value, cut: Cut) -> ir.Value:
        """The whole value out of all parts: accumulated as [.., M, part, ..], then put in order."""
        shape = self._shape(v)
        size = shape[cut.dim] // self.count
        before, behind = shape[: cut.dim], shape[cut.dim + 1 :]
        gathered = self._accumulate(
            part, self._type(v, [*before, self.count, size, *behind]), "concat", cut.dim
        )
        if cut.outer > 1:
            split = [*before, self.count, cut.outer, size // cut.outer, *behind]
            gathered = self._reshape(gathered, split, Phase.AFTER)
            order = list(range(len(split)))
            order[cut.dim], order[cut.dim + 1] = order[cut.dim + 1], order[cut.dim]
            attributes = {"permutation": ir.DenseI64ArrayAttr.get(order)}
            split = [split[d] for d in order]
            gathered = self._make(
                "stablehlo.transpose", self._type(v, split), [gathered], Phase.AFTER, attributes
            )
        return self._reshape(gathered, shape, Phase.AFTER)

    def _accumulate(
        self, value: ir.Value, type_: ir.Type, kind: str, batch_dim: int | None
    ) -> ir.Value:
        attributes = {"call_target_name": str_attr(ACCUMULATE), KIND: str_attr(kind)}
        if batch_dim is not None:
            attributes[BATCH_DIM] = int_attr(batch_dim)
        return self._make("stablehlo.custom_call", type_, [value], Phase.BODY, attributes)

    def _index(self) -> ir.Value:
        if self.index is None:
            scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
            attributes = {"call_target_name": str_attr(MICROBATCH_INDEX)}
            self.index = self._make("stablehlo.custom_call", scalar, [], Phase.BODY, attributes)
            self._zero_index = self._make(
                "stablehlo.constant",
                scalar,
                [],
                Phase.BODY,
                {"value": ir.DenseElementsAttr.get_splat(scalar, _i32(0))},
            )
        return self.index

    def _zero(self) -> ir.Value:
        self._index()
        return self._zero_index

    # ---- building ----

    def _reshape(self, value: ir.Value, shape: list[int], phase: Phase) -> ir.Value:
        type_ = ir.RankedTensorType.get(shape, ir.ShapedType(value.type).element_type)
        if type_ == value.type and value not in body(self.function).arguments:
            return value
        return self._make("stablehlo.reshape", type_, [value], phase, {})

    def _make(
        self,
        name: str,
        type_: ir.Type,
        operands: list[ir.Value],
        phase: Phase,
        attributes: dict[str, ir.Attribute],
    ) -> ir.Value:
        with self._at(phase):
            made = self._create(
                name, [type_], operands, {**attributes, PHASE: str_attr(phase.value)}
            )
        return made.results[0]

    @staticmethod
    def _create(
        name: str,
        types: list[ir.Type],
        operands: list[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Operation:
        return ir.Operation.create(
            name, results=types, operands=operands, attributes=attributes or {}
        )

    def _at(self, phase: Phase) -> ir.InsertionPoint:
        return ir.InsertionPoint(self.marks[phase])

    def _shape(self, v: int) -> list[int]:
        shape = self.graph.shapes[v]
        assert shape is not None, "only tensors of static shape are cut"
        return list(shape)

    def _type(self, v: int, shape: list[int]) -> ir.Type:
        return ir.RankedTensorType.get(shape, ir.ShapedType(self.graph.values[v].type).element_type)

    def _part_type(self, v: int, cut: Cut | None) -> ir.Type:
        if cut is None:
            return self.graph.values[v].type
        return self._type(v, list(cut.part(tuple(self._shape(v)), self.count)))


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _i32(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)
