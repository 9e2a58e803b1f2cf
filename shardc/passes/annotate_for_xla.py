"""Leave only what XLA's own partitioner reads: plain Shardy annotations."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

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
from shardc.ir.shardings import from_attr, result_shardings, set_result_shardings, to_attr
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import CONTROL_FLOW, functions, planned_ops
from shardc.plan.layout import TensorSharding

NOT_ANNOTATED = {"ApproxTopK"}  # XLA: "mhlo.sharding is not a supported attribute" (jaxlib 0.12.0)


@dataclass(frozen=True)
class AnnotateForXla(Pass):
    """Turns planned stage functions into global programs for `lowering="xla"`.

    Removes `shardc.in_shardings` and `shardc.reduce_axes`: XLA finds the reshards itself. Partial
    sums become whole values, since XLA decides where to reduce; so do accumulators. Loops and
    branches lose their shardings, the ops inside keep them: XLA (as of jaxlib 0.12.0) simplifies a
    loop and then ends the process when its sharding has more values than are left. `ApproxTopK`,
    which XLA refuses with a sharding on it, gets it as a constraint behind it.
    """

    name = "shardc-annotate-for-xla"
    never_refuses = "an op without annotations is valid input for XLA's partitioner"

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            mesh = f"stage{get_int(function, STAGE) or 0}"
            for op in planned_ops(function):
                for attribute in (IN_SHARDINGS, REDUCE_AXES):
                    if attribute in op.attributes:
                        del op.attributes[attribute]
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
                    set_result_shardings(op, [_whole(s) for s in shardings], mesh)
            set_arg_attrs(function, [_marked(attrs, mesh) for attrs in arg_attrs(function)])
            set_result_attrs(function, [_marked(attrs, mesh) for attrs in result_attrs(function)])


def _constrain(op: ir.Operation, shardings: Sequence[ir.Attribute]) -> None:
    """Says behind `op` where its results lie."""
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
