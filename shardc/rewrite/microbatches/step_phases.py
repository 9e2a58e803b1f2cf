"""Write the phases of a step: before, during and after its microbatches, sweep by sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import INVARIANT, Cut
from shardc.analysis.batch.control_flow import RegionFlow, inner_cut
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.phase_plan import Copy, Form, Materialization, Method, PhasePlan
from shardc.analysis.batch.phases import plan_phases
from shardc.ir.attributes import PHASE, str_attr
from shardc.ir.clone import clone_op, replace_inputs
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, ops, ops_of, terminator
from shardc.plan.function_kind import Phase
from shardc.rewrite.calls.function_signature import update_type
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.loops.strip_mining import make_strip, unroll_single
from shardc.rewrite.microbatches.control_flow import make_local_control_flow
from shardc.rewrite.microbatches.loop import loop_over_microbatches
from shardc.rewrite.microbatches.ops import MicrobatchOps, create, with_shape


def write_phases(
    function: ir.Operation, flow: BatchFlow, count: int, kept: Mapping[int, int]
) -> None:
    """Writes a step phase by phase before the old ops, and erases these.

    Args:
        kept: values -> the sweep that keeps them for later ones.
    """
    old = ops(function)
    joined: set[ir.Value] = set()
    step = _Phases(function, flow, plan_phases(flow, flow.num_sweeps - 1, kept), count, joined)
    step.write(_earlier_sweeps(function, flow, count, kept, joined))
    last = terminator(function)
    for position, v in enumerate(flow.program.graph.returned):
        last.operands[position] = step.env[v, Form(Phase.AFTER)]
    for op in reversed(old):
        op.erase()
    step.drop_marks()
    arguments = body(function).arguments
    for a, dim in flow.batch_args.items():
        shape = step.build.split_shape(shape_of(arguments[a]), dim)
        arguments[a].set_type(with_shape(arguments[a], shape))
    update_type(function)


def _earlier_sweeps(
    function: ir.Operation,
    flow: BatchFlow,
    count: int,
    kept: Mapping[int, int],
    joined: set[ir.Value],
) -> dict[int, ir.Value]:
    """Writes all sweeps but the last, each a loop over the microbatches, before all else.

    Returns:
        What they leave for later sweeps: sums, and the values that are kept.
    """
    found: dict[int, ir.Value] = {}
    sweeps = range(flow.num_sweeps - 1)
    plans = [plan_phases(flow, sweep, kept) for sweep in sweeps]
    runs = [_Phases(function, flow, plan, count, joined) for plan in reversed(plans)]
    for sweep, run in zip(sweeps, reversed(runs), strict=True):
        run.write(found)
        left = [*flow.sums_between(sweep), *(v for v, keeping in kept.items() if keeping == sweep)]
        values = {v: run.env[v, Form(Phase.AFTER)] for v in left}
        for op, whole in loop_over_microbatches(run.in_body(), run.marks[Phase.BODY], count):
            values = {v: whole if old == op.results[0] else old for v, old in values.items()}
            op.erase()
        for op in run.written():
            op.attributes[PHASE] = str_attr(Phase.BEFORE)
        run.drop_marks()
        found |= values
    return found


class _Phases:
    """Writes planned copies at the beginning of a function, phase by phase.

    Attributes:
        env: the materialized forms of values.
        build: builder of the ops that slice and combine.
        joined: whole values that this sweep, or another one, has made of all microbatches' parts:
            reshapes, in whose operands the dim of the microbatches is still apart.
    """

    def __init__(
        self,
        function: ir.Operation,
        flow: BatchFlow,
        plan: PhasePlan,
        count: int,
        joined: set[ir.Value],
    ) -> None:
        self.block = body(function)
        self.flow = flow
        self.graph = flow.program.graph
        self.plan = plan
        self.count = count
        self.env: dict[tuple[int, Form], ir.Value] = {}
        self.given: Mapping[int, ir.Value] = {}
        self.joined = joined
        self.single: list[ir.Operation] = []  # loops of which a microbatch has one iteration
        # Ops of a phase go before its mark; the index, which the body begins with, has its own.
        names = (Phase.BEFORE, "index", Phase.BODY, Phase.AFTER)
        with ir.InsertionPoint.at_block_begin(self.block), ir.Location.unknown():
            self.marks = {name: _mark() for name in names}
        points = {name: ir.InsertionPoint(mark) for name, mark in self.marks.items()}
        self.build = MicrobatchOps(count, points)

    def write(self, given: Mapping[int, ir.Value]) -> None:
        """Writes all copies.

        Args:
            given: what earlier sweeps leave.
        """
        self.given = given
        for a in range(self.graph.num_args):
            self._forms(a)
        for i in range(len(self.graph.ops)):
            for copy in self.plan.copies.get(i, []):
                self._copy(i, copy)
            for v in self.graph.results[i]:
                self._forms(v)
        for loop in self.single:
            for op in unroll_single(loop):
                op.attributes[PHASE] = str_attr(Phase.BODY)

    def written(self) -> list[ir.Operation]:
        """All ops up to the last one written."""
        found = ops_of(self.block)
        return found[: found.index(self.marks[Phase.AFTER])]

    def in_body(self) -> list[ir.Operation]:
        """The ops that run in each microbatch."""
        found = self.written()
        start, stop = (found.index(self.marks[name]) for name in (Phase.BEFORE, Phase.BODY))
        return [op for op in found[start + 1 : stop] if op != self.marks["index"]]

    def drop_marks(self) -> None:
        """Erases the marks, once everything is written."""
        for mark in self.marks.values():
            mark.erase()

    def _copy(self, i: int, copy: Copy) -> None:
        """One copy of an op, on the planned forms of its operands."""
        op, used, results = self.graph.ops[i], self.graph.uses[i], self.graph.results[i]
        if copy.positions is not None:
            used = tuple(used[p] for p in copy.positions)
            results = tuple(results[p] for p in copy.positions)
        new = [self.env[u, form] for u, form in zip(used, copy.operands, strict=True)]
        with ir.InsertionPoint(self.marks[copy.form.phase]), op.location:
            if copy.positions is not None:
                attributes = {name: op.attributes[name] for name in op.attributes}
                made = create(op.name, [n.type for n in new], new, attributes)
            elif i in self.flow.loops and copy.form.phase is Phase.BODY:
                made = self._loop(i, new)
            else:
                types = [
                    self._part_type(v, form.cut)
                    for v, form in zip(results, copy.results, strict=True)
                ]
                own = len(op.operands)
                made = make_local(op, new[:own], types)
                captured = [self.graph.values[u] for u in used[own:]]
                replace_inputs(made, dict(zip(captured, new[own:], strict=True)))
        made.attributes[PHASE] = str_attr(copy.form.phase)
        for v, form, value in zip(results, copy.results, made.results, strict=True):
            self.env[v, form] = value

    def _loop(self, i: int, new: list[ir.Value]) -> ir.Operation:
        """A loop or branch at the shapes of a microbatch."""
        op = self.graph.ops[i]
        count = len(op.operands)
        outside = [self.graph.values[u] for u in self.graph.uses[i][count:]]
        captured = dict(zip(outside, new[count:], strict=True))
        parts = _Parts(self.flow.loops[i], self.build, op.location)
        made = make_local_control_flow(op, new[:count], captured, parts)
        mining = parts.loop.strip_mining_of(op)
        if mining is not None and mining.counted.trips == self.count:
            self.single.append(made)
        return made

    def _forms(self, v: int) -> None:
        """Materializes the forms of a value that are not results of a copy of its op."""
        for form, made in self.plan.forms.get(v, {}).items():
            if made.method is Method.FORWARD:
                self.env[v, form] = self.env[self.graph.operand_at(v), form]
            elif made.method is not Method.CLONE:
                with self.graph.values[v].location:
                    self.env[v, form] = self._form(v, form, made)

    def _form(self, v: int, form: Form, made: Materialization) -> ir.Value:
        value = self.graph.values[v]
        if made.source is None:
            if made.method is Method.MERGE:
                return self.build.merge(value, shape_of(value), form.phase)
            if made.method is Method.READ:
                return self.build.read(value, self.flow.batch_args[v])
            if made.method is Method.EARLIER_SWEEP:
                return self.given[v]
            assert made.method is Method.ARGUMENT
            return value
        other = self.env[v, made.source]
        if made.method is Method.SUM:
            return self.build.sum(other)
        if made.method is Method.SLICE:
            assert form.cut is not None
            # Sliced where the dim of the microbatches is still apart, so that a mesh can shard the
            # rows of each.
            reshape = defining_op(other) if other in self.joined else None
            gathered = None if reshape is None else reshape.operands[0]
            return self.build.slice(other, form.cut.dim, form.cut.outer, gathered)
        if made.method is Method.CONCAT:
            assert made.source.cut is not None
            whole = self.build.concat(other, made.source.cut.dim, made.source.cut.outer)
            self.joined.add(whole)
            return whole
        assert made.method is Method.ALIAS
        return other

    def _part_type(self, v: int, cut: Cut | None) -> ir.Type:
        value = self.graph.values[v]
        return (
            value.type if cut is None else with_shape(value, cut.part(shape_of(value), self.count))
        )


@dataclass(frozen=True)
class _Parts:
    """The parts of values inside a loop or branch that one microbatch holds: see `Parts`."""

    loop: RegionFlow
    build: MicrobatchOps
    place: ir.Location

    def type_of(self, value: ir.Value) -> ir.Type:
        cut = self.loop.states.get(value, INVARIANT).cut
        shape = cut and cut.part(shape_of(value), self.build.count)
        return with_shape(value, shape) if shape else value.type

    def cut_of(self, op: ir.Operation, position: int) -> Cut | None:
        return inner_cut(self.loop, op, position)

    def cut(self, value: ir.Value, cut: Cut, point: ir.InsertionPoint) -> ir.Value:
        with self.place:
            return self.build.inside(point).slice(value, cut.dim, cut.outer)

    def strip_mined(
        self, op: ir.Operation, operands: Sequence[ir.Value], values: Mapping[ir.Value, ir.Value]
    ) -> ir.Operation | None:
        mining = self.loop.strip_mining_of(op)
        if mining is None:
            return None
        if self.build.count == 1:
            return clone_op(op, {**values, **dict(zip(op.operands, operands, strict=True))})
        return make_strip(op, mining, operands, values, self.build.index, self.build.count)


def _mark() -> ir.Operation:
    scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    zero = ir.DenseElementsAttr.get_splat(
        scalar, ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0)
    )
    return create("stablehlo.constant", [scalar], [], {"value": zero})
