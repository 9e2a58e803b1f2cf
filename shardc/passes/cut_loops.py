"""Cut loops over layers into loops over some of the layers, so that stages can divide them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.row_arguments import row_arguments
from shardc.analysis.loops.row_loop import RowLoop, row_read
from shardc.analysis.loops.stacked_layers import (
    LoopGroup,
    StackedLayers,
    boundaries,
    stacked_layers,
)
from shardc.analysis.program.arguments import ALIASING, argument_names, state_arguments
from shardc.ir.attributes import (
    NAME,
    ORIGIN,
    PIECE,
    ROW_CONFLICTS,
    STATE_RESULT,
    arg_attrs,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.clone import captures
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, ops, ops_of, terminator
from shardc.plan.layout import name_of_rows
from shardc.rewrite.calls.function_signature import return_values, update_type
from shardc.rewrite.calls.specialize_calls import fit_calls
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.loops.pieces import Piece, make_piece
from shardc.rewrite.loops.row_values import RowValues, joined, part_type
from shardc.rules.reducers import reducer


@dataclass(frozen=True)
class CutLoops(Pass):
    """Cuts loops over layers by iteration range: one loop of 8 becomes two of 4.

    Forward and backward loops over the same stacks are cut together, and each piece gets its own
    rows of the stacks: those that the loops read and write and, through light ops, those of the
    optimizer's values. A stack that is an argument of main and is used only by rows becomes several
    arguments: its first rows keep its position, the others are appended, marked `shardc.piece`; so
    does the result that replaces it.

    Every op of main gets `shardc.origin`, which identifies it when the loops are cut elsewhere. A
    module that has it is left alone.

    `shardc/analysis/loops/stacked_layers.py` says which loops may be cut, and which ops around them
    by rows; docs/proofs.md has the argument.

    Options:
        at: first iterations of pieces, counted over all groups of loops in program order (see
            `shardc.analysis.loops.stacked_layers`).
    """

    name = "shardc-cut-loops"
    never_refuses = "a loop whose iterations do not touch rows one by one is left alone"

    at: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        if any(ORIGIN in op.attributes for op in ops(main)):
            return
        for i, op in enumerate(ops(main)):
            op.attributes[ORIGIN] = _pair(i, 0)
        if not self.at:
            return
        state = state_arguments(main)
        flow = stacked_layers(module, state)
        if flow.conflicts:
            module.attributes[ROW_CONFLICTS] = int_attr(len(flow.conflicts))
        ends = {
            id(group): found
            for group in flow.groups
            if len(found := _row_ends(flow, group, self.at)) > 2
        }
        if ends:
            _Cutter(module, flow, ends, state).run()
            fit_calls(module)


class _Cutter:
    """Writes the pieces before the ops that are cut, and erases these ops.

    Args:
        ends: id of a group that is cut -> first rows of its pieces, and the end.
    """

    def __init__(
        self,
        module: ir.Operation,
        flow: StackedLayers,
        ends: dict[int, list[int]],
        state: dict[int, int],
    ) -> None:
        self.main, self.flow, self.ends, self.state = main_function(module), flow, ends, state
        self.groups = {
            i: group
            for i in range(len(flow.ops))
            if (group := flow.group_of(i)) is not None and id(group) in ends
        }
        self.arguments = row_arguments(module, flow, self.groups, state)
        self.values = RowValues()

    def run(self) -> None:
        signature = _Signature(self.main, self.state)
        for a, (dim, group) in self.arguments.items():
            parts = signature.cut(a, dim, self.ends[id(group)])
            self.values.give_argument(parts[0], dim, parts)
        for i, op in enumerate(self.flow.ops):
            with ir.InsertionPoint(op), op.location:
                if i not in self.groups:
                    self.values.use_whole(op)
                elif i in self.flow.loops:
                    self._cut_loop(i, op, self.flow.loops[i])
                else:
                    self._cut_op(i, op)
        with ir.InsertionPoint(terminator(self.main)), terminator(self.main).location:
            results = self._results()
        return_values(self.main, results)
        for i in sorted(self.groups, reverse=True):
            self.flow.ops[i].erase()
        signature.retype()

    def _results(self) -> list[ir.Value]:
        """The results: rows of the next state of cut arguments, all other results whole."""
        old = list(terminator(self.main).operands)
        by_rows = {
            self.state[a]: self.values.rows(old[self.state[a]], dim, self.ends[id(group)])
            for a, (dim, group) in self.arguments.items()
            if a in self.state
        }
        first = [by_rows[r][0] if r in by_rows else self.values.whole(v) for r, v in enumerate(old)]
        return [*first, *(part for parts in by_rows.values() for part in parts[1:])]

    def _cut_op(self, i: int, op: ir.Operation) -> None:
        rule, factor, ends = self.flow.rules[i], self.flow.factors[i], self.ends[id(self.groups[i])]
        assert rule is not None

        def row_dim(mapping: Sequence[tuple[int, ...]]) -> int | None:
            return mapping.index((factor,)) if (factor,) in mapping else None

        columns = []
        for value, mapping in zip(op.operands, rule.operands, strict=True):
            dim = row_dim(mapping)
            if dim is None:
                columns.append([self.values.whole(value)] * (len(ends) - 1))
            else:
                columns.append(self.values.rows(value, dim, ends))
        dims = [row_dim(mapping) for mapping in rule.results]
        made = []
        for q, (first, last) in enumerate(itertools.pairwise(ends)):
            types = [
                value.type if dim is None else part_type(value, dim, last - first)
                for value, dim in zip(op.results, dims, strict=True)
            ]
            made.append(make_local(op, [column[q] for column in columns], types))
        for r, (value, dim) in enumerate(zip(op.results, dims, strict=True)):
            parts = [each.results[r] for each in made]
            if dim is not None:
                self.values.give(value, dim, parts)
            elif op.name == "stablehlo.optimization_barrier":  # it passes beside the rows
                self.values.give_whole(value, parts[0])
            else:
                self.values.give_whole(value, joined(f"stablehlo.{reducer(op)}", parts))

    def _cut_loop(self, i: int, op: ir.Operation, found: RowLoop) -> None:
        group = self.groups[i]
        ends = self.ends[id(group)]
        stacks = {p: self.values.rows(op.operands[p], dim, ends) for p, dim in found.writes.items()}
        position = {each: n for n, each in enumerate(ops_of(found.body))}
        reads = {
            position[row_read(row)]: (dim, self.values.rows(row_read(row).operands[0], dim, ends))
            for row, dim in found.reads.items()
        }
        starts = {p: self.values.whole(v) for p, v in enumerate(op.operands) if p not in stacks}
        others = {v: self.values.whole(v) for v in captures(op) if found.uses_whole(v)}
        captured = {value: new for value, new in others.items() if value != new}
        carried = dict(starts)
        pieces: dict[int, ir.Operation] = {}  # by the number of their rows, in order of running
        order = range(len(ends) - 1)
        for q in order if found.forwards else reversed(order):
            first, last = found.row_range(ends[q], ends[q + 1])
            carried.update({p: starts[p] for p in found.sums})
            carried.update({p: parts[q] for p, parts in stacks.items()})
            piece = Piece(
                found.counted,
                first,
                last,
                ends[q],
                [carried[p] for p in range(len(op.operands))],
                {n: (dim, parts[q]) for n, (dim, parts) in reads.items()},
                found.writes,
                captured,
            )
            pieces[q] = make_piece(op, piece)
            pieces[q].attributes[ORIGIN] = _pair(i, group.first + first if first else 0)
            carried = dict(enumerate(pieces[q].results))
        for p, value in enumerate(op.results):
            if p in stacks:
                parts = [pieces[q].results[p] for q in order]
                self.values.give(value, found.writes[p], parts)
            elif p in found.sums:
                parts = [piece.results[p] for piece in pieces.values()]
                self.values.give_whole(value, joined("stablehlo.add", parts))
            else:
                self.values.give_whole(value, carried[p])


class _Signature:
    """The arguments and results of main while some become several."""

    def __init__(self, main: ir.Operation, state: dict[int, int]) -> None:
        self.main, self.state = main, state
        self.arg_attrs, self.result_attrs = arg_attrs(main), result_attrs(main)
        self.names = argument_names(main)
        self.types: dict[int, ir.Type] = {}
        for a, result in state.items():
            self.arg_attrs[a][STATE_RESULT] = int_attr(result)

    def cut(self, a: int, dim: int, ends: Sequence[int]) -> list[ir.Value]:
        """Adds the arguments for all rows of argument `a` but the first, and the results."""
        block, own = body(self.main), self.arg_attrs[a]
        whole = block.arguments[a]
        self.types[a] = part_type(whole, dim, ends[1])
        parts = [whole]
        for first, last in itertools.pairwise(ends[1:]):
            parts.append(
                block.add_argument(part_type(whole, dim, last - first), self.main.location)
            )
            attrs = {**own, PIECE: _pair(a, dim)}
            attrs[NAME] = str_attr(name_of_rows(self.names[a], first, last))
            if a in self.state:
                old, new = self.state[a], len(self.result_attrs)
                attrs[STATE_RESULT] = int_attr(new)
                if ALIASING in attrs:
                    i32 = ir.IntegerType.get_signless(32)
                    attrs[ALIASING] = ir.IntegerAttr.get(i32, new)
                self.result_attrs.append({**self.result_attrs[old], PIECE: _pair(old, dim)})
            self.arg_attrs.append(attrs)
        return parts

    def retype(self) -> None:
        """Updates the types of cut arguments and of the function, once the old ops are erased."""
        block = body(self.main)
        for a, type_ in self.types.items():
            block.arguments[a].set_type(type_)
        update_type(self.main)
        set_arg_attrs(self.main, self.arg_attrs)
        set_result_attrs(self.main, self.result_attrs)


def _row_ends(flow: StackedLayers, group: LoopGroup, at: Sequence[int]) -> list[int]:
    """The first rows of the pieces, and the end."""
    found = boundaries(group, at)
    if flow.loops[group.loops[0]].forwards:
        return found
    return [group.trips - each for each in reversed(found)]


def _pair(first: int, second: int) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([first, second])
