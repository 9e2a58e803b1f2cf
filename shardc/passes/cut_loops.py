"""Cut loops over layers into loops over some of the layers, so that stages can share them out."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.arguments import state_arguments
from shardc.analysis.iterations import Iterations, row_read
from shardc.analysis.row_flow import LoopGroup, RowFlow, boundaries, part_shape, row_flow
from shardc.analysis.state import ALIASING, STATE_RESULT, argument_names
from shardc.ir.attributes import (
    NAME,
    ORIGIN,
    PIECE,
    SHARDING,
    arg_attrs,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.clone import captures, inputs, replace_inputs
from shardc.ir.local_ops import make_local
from shardc.ir.loop_pieces import Piece, make_piece
from shardc.ir.microbatch_ops import create, with_shape
from shardc.ir.pass_manager import Pass
from shardc.ir.reducers import reducer
from shardc.ir.shardings import from_attr
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, made_by, main_function, ops, ops_of, terminator


@dataclass(frozen=True)
class CutLoops(Pass):
    """Cuts loops over layers by iteration range: one loop of 8 becomes two of 4.

    Forward and backward loops over the same stacks are cut together, and each piece has its rows
    of the stacks for itself: what the loops read, what they write, and, through light ops, what
    the optimizer makes of them. A stack that is an argument of main and is used by rows only
    becomes several arguments, its first rows in its old place and the others behind all
    arguments, marked `shardc.piece`; so does the result that replaces it.

    Every op of main gets `shardc.origin`, by which it is found again when the loops are cut in
    other places. A module that has it is left alone.

    Options:
        at: iterations that begin a piece, counted over all groups of loops in program order (see
            `shardc.analysis.row_flow`).
    """

    name = "shardc-cut-loops"
    never_refuses = "a loop whose iterations do not touch rows one by one is left alone"

    at: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        if any(ORIGIN in op.attributes for op in ops(main)):
            return
        for i, op in enumerate(ops(main)):
            op.attributes[ORIGIN] = _origin(i, 0)
        state = state_arguments(main)
        flow = row_flow(module, state) if self.at else RowFlow([], {}, [])
        cut = [group for group in flow.groups if len(boundaries(group, self.at)) > 2]
        if cut:
            _Emitter(main, flow, cut, self.at, state).emit()


class _Emitter:
    """Writes pieces in front of the ops that are cut, and drops these."""

    def __init__(
        self,
        main: ir.Operation,
        flow: RowFlow,
        cut: Sequence[LoopGroup],
        at: Sequence[int],
        state: dict[int, int],
    ) -> None:
        self.main, self.flow, self.state = main, flow, state
        self.group = {loop: group for group in cut for loop in group.loops}
        self.rows = {id(group): _row_boundaries(flow, group, at) for group in cut}
        self.number = {op: i for i, op in enumerate(flow.ops)}
        self.group_of: dict[int, LoopGroup] = {}  # of the ops that are cut
        for i, factor in flow.factors.items():
            if factor is not None and (found := self._group_of(i)) is not None:
                self.group_of[i] = found
        # Of values of ops that are gone: their rows, and what stands for the whole value.
        self.parts: dict[tuple[ir.Value, int], list[ir.Value]] = {}
        self.made: dict[ir.Value, int] = {}  # the dim of the rows of what a cut op made
        self.whole: dict[ir.Value, ir.Value] = {}
        self.gone: list[ir.Operation] = []
        self.arguments = self._cut_arguments()

    def emit(self) -> None:
        self._add_arguments()
        for i, op in enumerate(self.flow.ops):
            with ir.InsertionPoint(op), op.location:
                if i in self.group:
                    self._cut_loop(op, self.flow.loops[i], self.group[i])
                elif i in self.group_of:
                    self._cut_op(i, op)
                else:
                    self._use_whole(op)
        self._return()
        for op in reversed(self.gone):
            op.erase()
        self._retype()

    def _group_of(self, i: int) -> LoopGroup | None:
        op, factor, rule = self.flow.ops[i], self.flow.factors[i], self.flow.rules[i]
        assert rule is not None
        for value, mapping in [
            *zip(op.operands, rule.operands, strict=True),
            *zip(op.results, rule.results, strict=True),
        ]:
            if (factor,) in mapping and value in self.flow.stacks:
                dim, loop = self.flow.stacks[value]
                if mapping[dim] == (factor,):
                    return self.group.get(loop)
        return None

    # Arguments that are used by rows only, and the results that replace them.

    def _cut_arguments(self) -> dict[int, tuple[int, LoopGroup]]:
        """Arguments that become several -> the dim of their rows and the group."""
        found = {}
        returned = list(terminator(self.main).operands)
        attrs = arg_attrs(self.main)
        for a, value in enumerate(body(self.main).arguments):
            dim, loop = self.flow.stacks.get(value, (0, -1))
            rows_only = all(self._by_rows(use, dim, a) for use in value.uses)
            if loop not in self.group or not rows_only or not list(value.uses):
                continue
            if SHARDING in attrs[a] and from_attr(attrs[a][SHARDING]).dims[dim]:
                continue  # the user has it split along its rows over one mesh
            new = returned[self.state[a]] if a in self.state else value
            if new != value:
                maker = made_by(new)
                if maker not in self.number or self.flow.stacks.get(new, (0, -1))[0] != dim:
                    continue
                i = self.number[maker]
                if i not in self.group and i not in self.group_of:
                    continue
                if self._group_at(new) is not self.group[loop]:
                    continue
            found[a] = (dim, self.group[loop])
        return found

    def _group_at(self, value: ir.Value) -> LoopGroup | None:
        return self.group.get(self.flow.stacks[value][1])

    def _by_rows(self, use: ir.OpOperand, dim: int, argument: int) -> bool:
        op = use.owner.operation
        if op == terminator(self.main):
            return self.state.get(argument) == use.operand_number
        if op in self.number:
            i = self.number[op]
            if i in self.group:
                return False
            rule = self.flow.rules[i]
            if i not in self.group_of or rule is None:
                return False
            return rule.operands[use.operand_number][dim] == (self.flow.factors[i],)
        for i in self.group:
            reads = self.flow.loops[i].reads
            if len(op.results) == 1 and op.results[0] in reads and use.operand_number == 0:
                return reads[op.results[0]] == dim
        return False

    def _add_arguments(self) -> None:
        block = body(self.main)
        attrs = arg_attrs(self.main)
        names = argument_names(self.main)
        for a, result in self.state.items():
            attrs[a][STATE_RESULT] = int_attr(result)
        self.results = list(terminator(self.main).operands)
        self.result_attrs = result_attrs(self.main)
        for a, (dim, group) in self.arguments.items():
            value = block.arguments[a]
            rows = self.rows[id(group)]
            parts = [value]
            for first, last in itertools.pairwise(rows[1:]):
                piece = block.add_argument(
                    with_shape(value, part_shape(value, dim, last - first)), self.main.location
                )
                parts.append(piece)
                own = {**attrs[a], PIECE: _pair(a, dim)}
                own[NAME] = str_attr(f"{names[a]}, rows {first}:{last}")
                if a in self.state:
                    new = len(self.results)
                    own[STATE_RESULT] = int_attr(new)
                    if ALIASING in own:
                        own[ALIASING] = _i32(new)
                    self.result_attrs.append(
                        {**self.result_attrs[self.state[a]], PIECE: _pair(self.state[a], dim)}
                    )
                    self.results.append(self.results[self.state[a]])
                attrs.append(own)
            self.parts[value, dim] = parts
        self.arg_attrs = attrs

    def _return(self) -> None:
        """Returns the rows of what replaces a cut argument, and everything else whole."""
        end = terminator(self.main)
        with ir.InsertionPoint(end), end.location:
            values: list[ir.Value | None] = [None] * len(self.results)
            fresh = len(end.operands)
            for a, (dim, group) in self.arguments.items():
                if a in self.state:
                    parts = self._rows_of(self.results[self.state[a]], dim, group)
                    values[self.state[a]] = parts[0]
                    values[fresh : fresh + len(parts) - 1] = parts[1:]
                    fresh += len(parts) - 1
            for r, old in enumerate(self.results):
                if values[r] is None:
                    values[r] = self._whole_of(old)
            func.ReturnOp(values)
        end.erase()

    def _retype(self) -> None:
        block = body(self.main)
        for a, (dim, group) in self.arguments.items():
            value = block.arguments[a]
            rows = self.rows[id(group)]
            value.set_type(with_shape(value, part_shape(value, dim, rows[1] - rows[0])))
        types = [value.type for value in terminator(self.main).operands]
        new = ir.FunctionType.get([a.type for a in block.arguments], types)
        self.main.attributes["function_type"] = ir.TypeAttr.get(new)
        set_arg_attrs(self.main, self.arg_attrs)
        set_result_attrs(self.main, self.result_attrs)

    # Values.

    def _whole_of(self, value: ir.Value) -> ir.Value:
        """What stands for a value in ops that are not cut."""
        if value in self.made and value not in self.whole:
            dim = self.made[value]
            parts = self.parts[value, dim]
            joined = create(
                "stablehlo.concatenate", [value.type], parts, {"dimension": int_attr(dim)}
            )
            self.whole[value] = joined.results[0]
        return self.whole.get(value, value)

    def _give(self, value: ir.Value, dim: int, parts: list[ir.Value]) -> None:
        self.parts[value, dim] = parts
        self.made[value] = dim

    def _rows_of(self, value: ir.Value, dim: int, group: LoopGroup) -> list[ir.Value]:
        """The rows of a stack, piece by piece."""
        if (value, dim) not in self.parts:
            maker, whole = made_by(value), self._whole_of(value)
            splat = maker is not None and self.flow.factors.get(self.number[maker], 0) is None
            parts = []
            for first, last in itertools.pairwise(self.rows[id(group)]):
                if splat and maker is not None:
                    part = with_shape(value, part_shape(value, dim, last - first))
                    parts.append(make_local(maker, [], [part]).results[0])
                else:
                    parts.append(_slice(whole, dim, first, last))
            self.parts[value, dim] = parts
        return self.parts[value, dim]

    def _use_whole(self, op: ir.Operation) -> None:
        mapping = {}
        for value in inputs(op):
            stands = self._whole_of(value)
            if stands != value:
                mapping[value] = stands
        if mapping:
            replace_inputs(op, mapping)

    # Ops.

    def _cut_op(self, i: int, op: ir.Operation) -> None:
        rule, factor, group = self.flow.rules[i], self.flow.factors[i], self.group_of[i]
        assert rule is not None and factor is not None
        rows = self.rows[id(group)]

        def operand(value: ir.Value, mapping: Sequence[tuple[int, ...]]) -> list[ir.Value]:
            if (factor,) in mapping:
                return self._rows_of(value, list(mapping).index((factor,)), group)
            return [self._whole_of(value)] * (len(rows) - 1)

        columns = [operand(v, m) for v, m in zip(op.operands, rule.operands, strict=True)]
        made = []
        for q in range(len(rows) - 1):
            types = [
                with_shape(v, part_shape(v, list(m).index((factor,)), rows[q + 1] - rows[q]))
                if (factor,) in m
                else v.type
                for v, m in zip(op.results, rule.results, strict=True)
            ]
            made.append(make_local(op, [column[q] for column in columns], types))
        for r, (value, mapping) in enumerate(zip(op.results, rule.results, strict=True)):
            parts = [each.results[r] for each in made]
            if (factor,) in mapping:
                self._give(value, list(mapping).index((factor,)), parts)
            else:
                self.whole[value] = _joined(f"stablehlo.{reducer(op)}", parts)
        self.gone.append(op)

    def _cut_loop(self, op: ir.Operation, found: Iterations, group: LoopGroup) -> None:
        rows = self.rows[id(group)]
        order = range(len(rows) - 1) if found.forwards else range(len(rows) - 2, -1, -1)
        stacks = {p: self._rows_of(op.operands[p], dim, group) for p, dim in found.writes.items()}
        inner = ops_of(found.body)
        position = {each: n for n, each in enumerate(inner)}
        reads = {
            position[row_read(row)]: (dim, self._rows_of(row_read(row).operands[0], dim, group))
            for row, dim in found.reads.items()
        }
        by_rows = {inner[n].operands[0] for n in reads}
        captured = {
            v: self._whole_of(v)
            for v in captures(op)
            if v not in by_rows or self._used(v, op, found)
        }
        starts = {p: self._whole_of(v) for p, v in enumerate(op.operands) if p not in stacks}
        carried = dict(starts)
        pieces: list[ir.Operation] = []
        for q in order:
            first, last = found.row_range(rows[q], rows[q + 1])
            carried.update({p: starts[p] for p in found.sums})
            carried.update({p: parts[q] for p, parts in stacks.items()})
            counts = {p: start + step * first for p, (start, step) in found.counters.items()}
            step = found.counters[found.counter][1]
            piece = Piece(
                found.counter,
                step,
                counts[found.counter] + step * (last - first),
                counts,
                rows[q],
                [carried[p] for p in range(len(op.operands))],
                {n: (dim, parts[q]) for n, (dim, parts) in reads.items()},
                found.writes,
                {v: stands for v, stands in captured.items() if v != stands},
            )
            pieces.append(make_piece(op, piece))
            pieces[-1].attributes[ORIGIN] = _origin(self.number[op], group.first + first)
            carried = dict(enumerate(pieces[-1].results))
        in_rows = [piece for _, piece in sorted(zip(order, pieces, strict=True))]
        for p, value in enumerate(op.results):
            if p in stacks:
                self._give(value, found.writes[p], [piece.results[p] for piece in in_rows])
            elif p in found.sums:
                parts = [piece.results[p] for piece in pieces]
                self.whole[value] = _joined("stablehlo.add", parts)
            else:
                self.whole[value] = pieces[-1].results[p]
        self.gone.append(op)

    def _used(self, value: ir.Value, op: ir.Operation, found: Iterations) -> bool:
        """Whether a loop uses a stack in other ways than row by row."""
        return any(
            use.owner.operation != op
            and not (
                len(use.owner.operation.results) == 1
                and use.owner.operation.results[0] in found.reads
                and use.operand_number == 0
            )
            for use in value.uses
            if _is_inside(use.owner.operation, op)
        )


def _row_boundaries(flow: RowFlow, group: LoopGroup, at: Sequence[int]) -> list[int]:
    found = boundaries(group, at)
    if flow.loops[group.loops[0]].forwards:
        return found
    return [group.trips - each for each in reversed(found)]


def _is_inside(op: ir.Operation, outer: ir.Operation) -> bool:
    parent = op.parent
    while parent is not None:
        if parent.operation == outer:
            return True
        parent = parent.operation.parent
    return False


def _slice(value: ir.Value, dim: int, first: int, last: int) -> ir.Value:
    shape = shape_of(value)
    starts, limits = [0] * len(shape), list(shape)
    starts[dim], limits[dim] = first, last
    return stablehlo.SliceOp(value, starts, limits, [1] * len(shape)).result


def _joined(name: str, parts: Sequence[ir.Value]) -> ir.Value:
    total = parts[0]
    for part in parts[1:]:
        total = create(name, [part.type], [total, part]).results[0]
    return total


def _origin(position: int, first: int) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([position, first])


def _pair(number: int, dim: int) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([number, dim])


def _i32(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)
