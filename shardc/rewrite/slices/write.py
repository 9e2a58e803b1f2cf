"""Writes a stage function for one token slice by the recipes of `shardc.analysis.slices`."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.slices.held_parts import Roles
from shardc.analysis.slices.recipes import (
    Added,
    Carry,
    Finish,
    FunctionSlices,
    Iterate,
    Join,
    Make,
    Narrow,
    Rerun,
    Same,
    Take,
    whole,
)
from shardc.ir.attributes import (
    KIND,
    PER_MICROBATCH,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.clone import clone_op, inputs
from shardc.ir.tensor_types import shape_of, sum_type
from shardc.ir.walk import body, defining_op, ops, symbol
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import accumulator_id, computed_id
from shardc.rewrite.calls.function_signature import update_type
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.microbatches.ops import with_shape
from shardc.rewrite.slices.carries import added_to_rows, running_sum
from shardc.rewrite.slices.checks import broken, count_type
from shardc.rewrite.slices.loops import iterations_of
from shardc.rewrite.slices.rows import Span, added_at, cut_out, index, joined, rows_along
from shardc.rules.running_sums import Running

Attributes = dict[str, ir.Attribute]


class PartIds:
    """Value ids of the parts of values that slices exchange.

    Args:
        number: the first free one.
        sources: argument of a function -> the value that another function returns.
    """

    def __init__(self, number: int, sources: dict[ir.Value, ir.Value]) -> None:
        self._number, self._sources = number, sources
        self._known: dict[tuple[ir.Value, str, int], str] = {}
        self._counts: dict[str, str] = {}

    def part(self, value: ir.Value, slice_: int) -> str:
        """Of the rows of `value` that a slice computes."""
        return self._id(value, "rows", slice_)

    def rest(self, value: ir.Value, slice_: int) -> str:
        """Of what a slice and all later ones add to the rows of `value` of earlier slices."""
        return self._id(value, "rest", slice_)

    def carry(self, value: ir.Value, slice_: int) -> str:
        """Of the running total of `value` before a slice."""
        return self._id(value, "carry", slice_)

    def counts(self, function: ir.Operation) -> str:
        """Of the accumulator that counts the violated premises of a function."""
        key = symbol(function)
        if key not in self._counts:
            self._counts[key] = accumulator_id(self._number)
            self._number += 1
        return self._counts[key]

    def fresh(self) -> str:
        """A new id."""
        self._number += 1
        return computed_id(self._number - 1)

    def _id(self, value: ir.Value, what: str, slice_: int) -> str:
        key = self._sources.get(value, value), what, slice_
        if key not in self._known:
            self._known[key] = computed_id(self._number)
            self._number += 1
        return self._known[key]


def _maker(value: ir.Value) -> ir.Operation:
    op = defining_op(value)
    assert op is not None, "what is an argument is taken"
    return op


class SliceWriter:
    """Writes a function for slice number `slice_` of `spans`, at the current insertion point."""

    def __init__(
        self,
        function: ir.Operation,
        how: FunctionSlices,
        spans: Sequence[Span],
        slice_: int,
        ids: PartIds,
    ) -> None:
        self._function, self._how, self._ids = function, how, ids
        self._spans, self._slice, self._span = spans, slice_, spans[slice_]
        self._forward = function_kind(function) is FunctionKind.FORWARD
        self._own: dict[ir.Value, Attributes] = dict(
            zip(body(function).arguments, arg_attrs(function), strict=True)
        )
        self._made: dict[tuple[ir.Value, Roles], ir.Value] = {}
        self._taken: dict[str, ir.Value] = {}
        self._attrs: list[Attributes] = []
        self._results: list[tuple[ir.Value, Attributes]] = []

    def write(self) -> None:
        function = self._function
        kind, stage = function_kind(function), get_int(function, STAGE)
        name = f"stage{stage}_{kind}_{self._slice}"
        written = func.FuncOp(name, ir.FunctionType.get([], [])).operation
        written.attributes[STAGE] = function.attributes[STAGE]
        written.attributes[KIND] = function.attributes[KIND]
        written.attributes[ROUND] = int_attr(self._slice)
        self._block = written.regions[0].blocks.append()
        with ir.InsertionPoint(self._block), function.location:
            for argument in body(function).arguments:
                self._make_all(argument)
            for op in ops(function):
                with op.location:
                    for result in op.results:
                        self._make_all(result)
            self._give()
            func.ReturnOp([value for value, _ in self._results])
        update_type(written)
        set_arg_attrs(written, self._attrs)
        set_result_attrs(written, [attrs for _, attrs in self._results])

    def _make_all(self, value: ir.Value) -> None:
        for roles, recipe in self._how.recipes.get(value, {}).items():
            if (value, roles) in self._made:
                continue  # with another result of its op
            match recipe:
                case Take():
                    self._made[value, roles] = self._argument(value, roles)
                case Same(position):
                    self._made[value, roles] = self._made[_maker(value).operands[position], roles]
                case Narrow(source):
                    self._made[value, roles] = self._narrowed(value, source, roles)
                case Join(source, dim):
                    parts = [self._earlier(value, source, s) for s in range(self._slice)]
                    self._made[value, roles] = joined([*parts, self._made[value, source]], dim)
                case Make(operands, results):
                    self._make(_maker(value), operands, results)
                case Finish(operands, dim):
                    self._made[value, roles] = self._finished(value, operands, dim)
                case Carry(operands, along):
                    self._made[value, roles] = self._carried(value, operands, along)
                case Iterate():
                    self._iterate(_maker(value), recipe)
                case Rerun(operands, along):
                    op = _maker(value)
                    given = [self._made[each] for each in zip(op.operands, operands, strict=True)]
                    self._made[value, roles] = running_sum(op, given, along)

    def _make(self, op: ir.Operation, operands: Sequence[Roles], results: Sequence[Roles]) -> None:
        given = [self._made[each] for each in zip(op.operands, operands, strict=True)]
        if any(map(any, (*operands, *results))):
            types = [
                with_shape(result, self._span.shape(result, roles))
                for result, roles in zip(op.results, results, strict=True)
            ]
            made = make_local(op, given, types)
        else:
            known = {value: self._made[value, whole(value)] for value in inputs(op)}
            made = clone_op(op, known)
        for result, roles, new in zip(op.results, results, made.results, strict=True):
            self._made[result, roles] = new

    def _finished(self, value: ir.Value, operands: Sequence[Roles], dim: int) -> ir.Value:
        """The slice's own rows of a sum to which it and all later slices add."""
        op = _maker(value)
        given = [self._made[each] for each in zip(op.operands, operands, strict=True)]
        shape = list(shape_of(value))
        shape[dim] = self._span.end
        total = make_local(op, given, [sum_type(with_shape(value, shape))]).results[0]
        if self._slice + 1 < len(self._spans):
            attrs = self._per_microbatch(self._ids.rest(value, self._slice + 1))
            total = stablehlo.AddOp(total, self._take(total.type, attrs)).result
        if self._slice > 0:
            rest = rows_along(total, dim, 0, self._span.first)
            attrs = self._per_microbatch(self._ids.rest(value, self._slice))
            self._results.append((rest, attrs))
        done = rows_along(total, dim, self._span.first, self._span.end)
        own = with_shape(value, shape_of(done))
        return done if done.type == own else stablehlo.ConvertOp(own, done).result

    def _carried(self, value: ir.Value, operands: Sequence[Roles], along: Running) -> ir.Value:
        """The slice's own rows of a running sum, continued from the slice that ran before."""
        op = _maker(value)
        given = [self._made[each] for each in zip(op.operands, operands, strict=True)]
        own = running_sum(op, given, along)
        shape = list(shape_of(own))
        last = len(self._spans) - 1
        begins, ends = (last, 0) if along.reverse else (0, last)
        if self._slice != begins:
            edge = with_shape(own, [1 if d == along.dim else n for d, n in enumerate(shape)])
            attrs = self._per_microbatch(self._ids.carry(value, self._slice))
            own = added_to_rows(op, self._take(edge, attrs), own)
        if self._slice != ends:
            first = 0 if along.reverse else shape[along.dim] - 1
            reached = rows_along(own, along.dim, first, first + 1)
            after = self._slice + (-1 if along.reverse else 1)
            self._results.append((reached, self._per_microbatch(self._ids.carry(value, after))))
        return own

    def _iterate(self, op: ir.Operation, how: Iterate) -> None:
        """The iterations of the slice, continued from the slice that ran before."""
        given = [self._made[each] for each in zip(op.operands, how.operands, strict=True)]
        last = len(self._spans) - 1
        begins, ends, step = (0, last, 1) if how.loop.rows.forwards else (last, 0, -1)
        if self._slice != begins:
            for p in how.loop.carried:
                attrs = self._per_microbatch(self._ids.carry(op.results[p], self._slice))
                given[p] = self._take(op.results[p].type, attrs)
        captured = {value: self._made[value, roles] for value, roles in how.captured}
        new = iterations_of(how.loop, self._span, given, captured)
        if self._slice != ends:
            for p in how.loop.carried:
                attrs = self._per_microbatch(self._ids.carry(op.results[p], self._slice + step))
                self._results.append((new.results[p], attrs))
        for result, roles, made in zip(op.results, how.results, new.results, strict=True):
            self._made[result, roles] = made

    def _narrowed(self, value: ir.Value, source: Roles, roles: Roles) -> ir.Value:
        sizes = shape_of(value)
        there = [self._span.bounds(r, n) for r, n in zip(source, sizes, strict=True)]
        wanted = [self._span.bounds(r, n) for r, n in zip(roles, sizes, strict=True)]
        first = [low - start for (low, _), (start, _) in zip(wanted, there, strict=True)]
        end = [high - start for (_, high), (start, _) in zip(wanted, there, strict=True)]
        return cut_out(self._made[value, source], first, end)

    def _argument(self, value: ir.Value, roles: Roles) -> ir.Value:
        if not any(roles):
            return self._take(value.type, self._own[value])
        return self._earlier(value, roles, self._slice)

    def _earlier(self, value: ir.Value, roles: Roles, slice_: int) -> ir.Value:
        """The rows that an earlier slice has computed of a value, as an argument."""
        type_ = with_shape(value, self._spans[slice_].shape(value, roles))
        return self._take(type_, self._per_microbatch(self._ids.part(value, slice_)))

    def _take(self, type_: ir.Type, attrs: Attributes) -> ir.Value:
        name = str(ir.StringAttr(attrs[VALUE]).value)
        if name not in self._taken:
            self._taken[name] = self._block.add_argument(type_, self._function.location)
            self._attrs.append(attrs)
        return self._taken[name]

    def _per_microbatch(self, name: str) -> Attributes:
        return {VALUE: str_attr(name), PER_MICROBATCH: ir.UnitAttr.get()}

    def _give(self) -> None:
        attrs = result_attrs(self._function)
        once = self._slice == (0 if self._forward else len(self._spans) - 1)
        given = set()
        for each in self._how.given:
            if each.roles is not None:
                name = self._ids.part(each.value, self._slice)
                new = self._made[each.value, each.roles]
                self._results.append((new, self._per_microbatch(name)))
                given.add(each.value)
            elif once:
                new = self._made[each.value, whole(each.value)]
                self._results.append((new, attrs[each.position]))
        last = self._slice + 1 == len(self._spans)
        for value in self._how.joined:
            if value not in given and not last:
                own = next(iter(self._how.recipes[value]))
                name = self._ids.part(value, self._slice)
                self._results.append((self._made[value, own], self._per_microbatch(name)))
        for added in self._how.added:
            if added.roles is not None or once:
                self._results.append((self._total(added), attrs[added.position]))
        if self._how.checked:
            self._check()

    def _check(self) -> None:
        """Counts the elements of the slice that violate premises."""
        premises = list(self._how.checked)
        parts = [self._made[each.value, roles] for each, roles in self._how.checked.items()]
        attrs = {VALUE: str_attr(self._ids.counts(self._function))}
        total = self._take(count_type(len(premises)), attrs)
        self._results.append((stablehlo.AddOp(total, broken(premises, parts)).result, attrs))

    def _total(self, added: Added) -> ir.Value:
        """The accumulator with the slice's addend."""
        op, value = added.op, added.op.operands[added.operand]
        roles = whole(value) if added.roles is None else added.roles
        part = self._made[value, roles]
        total = op.operands[1 - added.operand]
        taken = self._take(total.type, self._own[total])
        with op.location:
            first = [
                self._span.bounds(role, size)[0]
                for role, size in zip(roles, shape_of(value), strict=True)
            ]
            if op.name == "stablehlo.add":
                return added_at(taken, part, first)
            starts = [
                index(low) if low else self._made[start, whole(start)]
                for low, start in zip(first, list(op.operands)[2:], strict=True)
            ]
            return stablehlo.DynamicUpdateSliceOp(taken, part, starts).result
