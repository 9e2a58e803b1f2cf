"""Which stacked arguments of a step can be passed and returned as several groups of rows."""

from collections.abc import Mapping

from jax.extend.mlir import ir

from shardc.analysis.loops.stacked_layers import LoopGroup, StackedLayers
from shardc.ir.attributes import SHARDING, arg_attrs
from shardc.ir.shardings import from_attr
from shardc.ir.walk import body, defining_op, main_function, terminator


def row_arguments(
    module: ir.Operation,
    flow: StackedLayers,
    groups: Mapping[int, LoopGroup],
    state: Mapping[int, int],
) -> dict[int, tuple[int, LoopGroup]]:
    """Arguments that are used by rows only -> the dim of their rows and the group of loops.

    Args:
        groups: position of an op or loop of main that is cut -> the group that it is cut for.
        state: argument -> result that replaces it in the next step; it must be made by rows, too.
    """
    main = main_function(module)
    returned, attrs = list(terminator(main).operands), arg_attrs(main)
    number = {op: i for i, op in enumerate(flow.ops)}
    read = {row: dim for i in flow.loops if i in groups for row, dim in flow.loops[i].reads.items()}

    def by_rows(use: ir.OpOperand, dim: int, argument: int) -> bool:
        op = use.owner.operation
        if op == terminator(main):
            return state.get(argument) == use.operand_number
        if op in number:
            i = number[op]
            rule = flow.rules[i]
            if i in flow.loops or i not in groups or rule is None:
                return False
            return rule.operands[use.operand_number][dim] == (flow.factors[i],)
        is_row = len(op.results) == 1 and use.operand_number == 0
        return is_row and read.get(op.results[0]) == dim

    def made_by_rows(value: ir.Value, dim: int, group: LoopGroup) -> bool:
        known, loop = flow.stacks.get(value, (-1, -1))
        maker = defining_op(value)
        made = maker in number and number[maker] in groups
        return made and known == dim and groups.get(loop) is group

    found = {}
    for a, value in enumerate(body(main).arguments):
        dim, loop = flow.stacks.get(value, (0, -1))
        uses = list(value.uses)
        if loop not in groups or not uses or not all(by_rows(use, dim, a) for use in uses):
            continue
        if SHARDING in attrs[a] and from_attr(attrs[a][SHARDING]).dims[dim]:
            continue  # a user sharding splits its rows over one mesh
        new = returned[state[a]] if a in state else value
        if new == value or made_by_rows(new, dim, groups[loop]):
            found[a] = (dim, groups[loop])
    return found
