"""Let the users of a value share a reshard of it."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import body, functions, nested_ops
from shardc.rules.allowed_factors import COUNTED_ONCE

# Linear ops: if an operand may stay a partial sum, so may the result. For sums one such operand is
# enough, because the others count on one device.
SUMS = frozenset(COUNTED_ONCE)
HAND_ON = frozenset(f"stablehlo.{n}" for n in ("negate", "reshape", "transpose", "convert"))
# Users that read a whole activation, however it is sharded.
TAKE_IN = PRODUCTS | {"stablehlo.reduce"}


@dataclass(frozen=True)
class ShareReshards(Pass):
    """Inserts a fully open `sdy.sharding_constraint` between a value and several users.

    A reshard is priced per edge between a value and a user, so several users that require the same
    other sharding would be charged for it several times. Here they share one neighbour of any
    sharding: the reshard to it is emitted, and priced, once. It may also have the value's own
    sharding, so no plan becomes more expensive. Only where many bytes move: partial sums of a
    product are reduced for all its users, and an activation is resharded for all products and
    reductions that consume it. Other ops follow their neighbours, and each constraint adds a
    decision. Users in other blocks are left alone. A second run changes nothing.

        %q = stablehlo.dot_general %x, %wq
        %k = stablehlo.dot_general %x, %wk
    becomes
        %y = sdy.sharding_constraint %x <mesh<[]>, [{?}, {?}]>
        %q = stablehlo.dot_general %y, %wq
        %k = stablehlo.dot_general %y, %wk
    """

    name = "shardc-share-reshards"
    never_refuses = "a value that one op uses is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            for value in body(function).arguments:
                _share(value)
            summed: set[ir.Value] = set()
            for op in nested_ops(function):
                if len(op.results) != 1 or op.name == CONSTRAINT:
                    continue
                result = op.results[0]
                handed_on = op.name in HAND_ON and op.operands[0] in summed
                if op.name in PRODUCTS or handed_on or _adds_up(op, summed):
                    summed.add(result)
                _share(result, summed=result in summed and op.name in PRODUCTS | SUMS)


def _adds_up(op: ir.Operation, summed: set[ir.Value]) -> bool:
    return op.name in SUMS and not summed.isdisjoint(op.operands)


def _share(value: ir.Value, summed: bool = False) -> None:
    """Inserts a constraint before the users of `value` that may share a reshard, if several may.

    Args:
        summed: the value may be unreduced, so that all users require a reduction.
    """
    if not isinstance(value.type, ir.RankedTensorType) or not shape_of(value):
        return
    maker = value.owner
    block = maker if isinstance(maker, ir.Block) else maker.operation.block
    users = list(dict.fromkeys(use.owner.operation for use in value.uses))
    if any(user.name == CONSTRAINT for user in users):
        return
    users = [user for user in users if user.block == block]
    if not summed:
        several = sum(user.name in PRODUCTS for user in users) > 1
        users = [user for user in users if several and user.name in TAKE_IN]
    if len(users) < 2:
        return
    first = users[0]
    for user in users[1:]:
        if user.is_before_in_block(first):
            first = user
    dims = [sdy.DimensionShardingAttr.get([], is_closed=False) for _ in shape_of(value)]
    anywhere = sdy.TensorShardingAttr.get(sdy.MeshAttr.get([]), dims)
    with ir.InsertionPoint(first), first.location:
        shared = sdy.ShardingConstraintOp(value, anywhere).result
    for user in users:
        for position, operand in enumerate(user.operands):
            if operand == value:
                user.operands[position] = shared
