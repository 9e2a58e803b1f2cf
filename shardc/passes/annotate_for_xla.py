"""Leave only what XLA's own partitioner reads: plain Shardy annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardc.ir.attributes import (
    IN_SHARDINGS,
    REDUCE_AXES,
    SHARDING,
    STAGE,
    arg_attrs,
    call_target,
    get_int,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
)
from shardc.ir.pass_manager import Pass
from shardc.ir.shardings import (
    attrs_on,
    from_attr,
    operand_shardings,
    result_shardings,
    set_result_shardings,
    to_attr,
    value_shardings,
)
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import CONTROL_FLOW, functions, planned_ops
from shardc.plan.layout import TensorSharding
from shardc.rewrite.local.extremes import EXTREMES, as_floats, as_integers, is_ordered
from shardc.rules.reducers import reducer, splits_into_partial_results, sums_numbers

NOT_ANNOTATED = {"ApproxTopK"}  # XLA: "mhlo.sharding is not a supported attribute" (jaxlib 0.12.0)
# Ops that XLA may split along windows and then sum wrongly (a convolution's gradient with strides,
# a window reduction with an initial value other than zero; jaxlib 0.12.0).
SLIDING = ("stablehlo.convolution", "stablehlo.reduce_window", "stablehlo.select_and_scatter")


@dataclass(frozen=True)
class AnnotateForXla(Pass):
    """Turns planned stage functions into global programs for `lowering="xla"`.

    Removes `shardc.in_shardings` and `shardc.reduce_axes`: XLA inserts the reshards itself. Partial
    sums and accumulators become reduced values, since XLA decides where to reduce. Loops and
    branches lose their shardings, the ops inside keep them: XLA (as of jaxlib 0.12.0) simplifies a
    loop and then aborts the process because its sharding lists more values than are left.
    `ApproxTopK`, which XLA refuses with a sharding attribute, gets a constraint on its result.

    Ops that XLA would split further than planned, and then miscompile, get constraints on their
    operands: windows, and bitwise reductions, for which CPUs have no collective. Maxima and minima
    of floats, for which these collectives drop nan, are reduced as integers. Iotas of other types
    than integers count in i32: XLA adds where a part begins in the element type, rounding twice.
    """

    name = "shardc-annotate-for-xla"
    never_refuses = "an op without annotations is valid input for XLA's partitioner"

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            mesh = f"stage{get_int(function, STAGE) or 0}"
            written = value_shardings(function)
            attr_of = attrs_on(mesh)
            for op in planned_ops(function):
                if _needs_planned_operands(op):
                    _place_operands(op, written, mesh)
                for attribute in (IN_SHARDINGS, REDUCE_AXES):
                    if attribute in op.attributes:
                        del op.attributes[attribute]
                if op.name == "stablehlo.iota":
                    op = _counted(op)
                shardings = result_shardings(op)
                if op.name == CONSTRAINT and shardings is not None:
                    op.attributes["sharding"] = to_attr(_whole(shardings[0]), mesh)
                    del op.attributes[SHARDING]
                elif op.name in CONTROL_FLOW and shardings is not None:
                    del op.attributes[SHARDING]
                elif call_target(op) in NOT_ANNOTATED and shardings is not None:
                    del op.attributes[SHARDING]
                    _constrain(op, [to_attr(_whole(s), mesh) for s in shardings])
                elif shardings is not None:
                    set_result_shardings(op, [_whole(s) for s in shardings], attr_of)
                    if _may_drop_nan(op):
                        written.pop(op.results[0], None)  # a later value may get its address
                        _reduce_integers(op)
            set_arg_attrs(function, [_marked(attrs, mesh) for attrs in arg_attrs(function)])
            set_result_attrs(function, [_marked(attrs, mesh) for attrs in result_attrs(function)])


def _needs_planned_operands(op: ir.Operation) -> bool:
    if op.name == "stablehlo.reduce":
        return not splits_into_partial_results(op)
    return op.name in SLIDING or (op.name == "stablehlo.scatter" and not sums_numbers(op))


def _place_operands(op: ir.Operation, written: Mapping[ir.Value, ir.Attribute], mesh: str) -> None:
    """Constrains the operands of `op` to their planned shardings, where they differ."""
    for position, wanted in enumerate(operand_shardings(op) or ()):
        value = op.operands[position]
        lies = from_attr(written[value]).dims if value in written else None
        if shape_of(value) and lies != wanted.dims:
            with ir.InsertionPoint(op), op.location:
                placed = sdy.ShardingConstraintOp(value, to_attr(_whole(wanted), mesh)).result
            op.operands[position] = placed


def _counted(op: ir.Operation) -> ir.Operation:
    """The op that gives the numbers of an iota: of one of floats, a conversion of an i32 iota."""
    result = op.results[0]
    if isinstance(ir.RankedTensorType(result.type).element_type, ir.IntegerType):
        return op
    with ir.InsertionPoint(op), op.location:
        numbers = ir.RankedTensorType.get(shape_of(result), ir.IntegerType.get_signless(32))
        dim = int(ir.IntegerAttr(op.attributes["iota_dimension"]).value)
        counted = stablehlo.IotaOp(numbers, dim).operation
        made = stablehlo.ConvertOp(result.type, counted.results[0]).operation
    if SHARDING in op.attributes:
        counted.attributes[SHARDING] = made.attributes[SHARDING] = op.attributes[SHARDING]
    result.replace_all_uses_with(made.results[0])
    op.erase()
    return made


def _may_drop_nan(op: ir.Operation) -> bool:
    """Whether XLA may reduce a maximum or minimum of floats over devices: it may split the operand
    in other ways than planned, as it does inside loops."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1:
        return False
    return reducer(op) in EXTREMES and is_ordered(op.results[0])


def _reduce_integers(op: ir.Operation) -> None:
    """Reduces a maximum or minimum of floats as integers in the same order."""
    name, result = str(reducer(op)), op.results[0]
    with ir.InsertionPoint(op), op.location:
        keys = [as_integers(value, name) for value in op.operands]
        element = ir.RankedTensorType(keys[0].type).element_type
        type_ = ir.RankedTensorType.get(shape_of(result), element)
        dims = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        made = stablehlo.ReduceOp([type_], keys[:1], keys[1:], dims).operation
        made.attributes[SHARDING] = op.attributes[SHARDING]
        scalar = ir.RankedTensorType.get([], element)
        block = made.regions[0].blocks.append(scalar, scalar, arg_locs=[op.location] * 2)
        with ir.InsertionPoint(block):
            larger = ir.Operation.create(
                f"stablehlo.{name}", results=[scalar], operands=list(block.arguments)
            )
            stablehlo.ReturnOp(larger.results)
        result.replace_all_uses_with(as_floats(made.results[0], result.type))
    op.erase()


def _constrain(op: ir.Operation, shardings: Sequence[ir.Attribute]) -> None:
    """Constrains the results of `op` to `shardings`."""
    for result, sharding in reversed(list(zip(op.results, shardings, strict=True))):
        with ir.InsertionPoint.after(op), op.location:
            lies = sdy.ShardingConstraintOp(result, sharding).operation
        result.replace_all_uses_except(lies.results[0], lies)


def _whole(sharding: TensorSharding) -> TensorSharding:
    return TensorSharding(sharding.dims)


def _marked(attrs: dict[str, ir.Attribute], mesh: str) -> dict[str, ir.Attribute]:
    if SHARDING not in attrs:
        return attrs
    return {**attrs, SHARDING: to_attr(_whole(from_attr(attrs[SHARDING])), mesh)}
