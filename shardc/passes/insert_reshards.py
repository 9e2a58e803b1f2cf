"""Reshard the operands of every op to the shardings that the plan chose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.errors import PlanError
from shardc.ir.attributes import IN_SHARDINGS, SHARDING, is_local, result_attrs
from shardc.ir.pass_manager import Pass
from shardc.ir.shardings import (
    from_attr,
    mesh_name,
    sharding_or_replicated,
    to_attr,
    value_shardings,
)
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import (
    CONTROL_FLOW,
    RETURN,
    defining_op,
    functions,
    nested_ops,
    terminator,
    walk,
    where,
)
from shardc.plan.layout import TensorSharding


@dataclass(frozen=True)
class InsertReshards(Pass):
    """Inserts an `sdy.reshard` where the sharding of a value differs from what its user requires.

    Reads `shardc.in_shardings` of each op and removes it, and `sdy.sharding` of the functions'
    results: after this pass the plan is explicit in the program, and open constraints have their
    planned shardings. The values that a region yields get the shardings of its op's results. A
    reshard is in the block of the value that it reshards, so a value from outside a loop is
    resharded once, before it. Users that require the same sharding share one reshard. A value that
    already agrees is left alone, so a second run changes nothing.

        %1 = stablehlo.negate %0 {shardc.in_shardings = [#sdy.sharding<@mesh, [{"x"}]>]}
    becomes, where %0 is replicated,
        %r = sdy.reshard %0 <@mesh, [{"x"}]>
        %1 = stablehlo.negate %r
    """

    name = "shardc-insert-reshards"

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            if is_local(function):
                continue
            resharder = _Resharder(value_shardings(function))
            for op in nested_ops(function):
                if IN_SHARDINGS in op.attributes:
                    wanted = list(ir.ArrayAttr(op.attributes[IN_SHARDINGS]))
                    _check_fits(op, wanted)
                    resharder.operands(op, wanted)
                    if op.name not in CONTROL_FLOW:
                        resharder.captured_whole(op)
                    if op.name == CONSTRAINT:
                        op.attributes["sharding"] = wanted[0]
                    del op.attributes[IN_SHARDINGS]
                elif op.name == RETURN:
                    resharder.returned(op)
            end = terminator(function)
            for position, attrs in enumerate(result_attrs(function)):
                if SHARDING in attrs:
                    value = end.operands[position]
                    end.operands[position] = resharder.value(value, attrs[SHARDING], end)


class _Resharder:
    """Makes each reshard of a function once."""

    def __init__(self, written: Mapping[ir.Value, ir.Attribute]) -> None:
        self.written = written
        self.made: dict[tuple[ir.Value, TensorSharding], ir.Value] = {}

    def value(self, value: ir.Value, wanted: ir.Attribute, user: ir.Operation) -> ir.Value:
        """`value` in the sharding `wanted`, resharded before `user` if it differs."""
        target = from_attr(wanted)
        if sharding_or_replicated(value, self.written) == target:
            return value
        value = self._original(value)
        if (value, target) not in self.made:
            with ir.InsertionPoint(_in_block_of(value, user)), user.location:
                self.made[value, target] = sdy.ReshardOp(value, wanted).result
        return self.made[value, target]

    def _original(self, value: ir.Value) -> ir.Value:
        """The value that `value` forwards, looking through constraints that change nothing."""
        maker = defining_op(value)
        if maker is None or maker.name != CONSTRAINT:
            return value
        lies, before = (
            sharding_or_replicated(each, self.written) for each in (value, maker.operands[0])
        )
        return self._original(maker.operands[0]) if lies == before else value

    def operands(self, op: ir.Operation, wanted: Sequence[ir.Attribute]) -> None:
        """Reshards the operands of `op` to `wanted`."""
        for position, attr in enumerate(wanted):
            op.operands[position] = self.value(op.operands[position], attr, op)

    def captured_whole(self, op: ir.Operation) -> None:
        """Replicates the captures of a reducer, which has no shardings of its own."""
        for inner in walk(op):
            for position, value in enumerate(inner.operands):
                if value in self.written:
                    inner.operands[position] = self.whole(value, op)

    def returned(self, op: ir.Operation) -> None:
        """Reshards yielded values like the results of the op; a loop's condition is replicated."""
        parent = op.parent
        assert parent is not None
        condition = parent.name == "stablehlo.while" and parent.regions[0].blocks[0] == op.block
        if SHARDING in parent.attributes and not condition:
            per_value = sdy.TensorShardingPerValueAttr(parent.attributes[SHARDING])
            self.operands(op, list(per_value.shardings))
            return
        for position, value in enumerate(op.operands):
            if value in self.written:
                op.operands[position] = self.whole(value, op)

    def whole(self, value: ir.Value, user: ir.Operation) -> ir.Value:
        """`value`, which has a sharding, replicated."""
        replicated = TensorSharding.replicated(len(shape_of(value)))
        return self.value(value, to_attr(replicated, mesh_name(self.written[value])), user)


def _in_block_of(value: ir.Value, user: ir.Operation) -> ir.Operation:
    """The ancestor of `user` (or itself) in the block that defines `value`."""
    owner = value.owner
    block = owner if isinstance(owner, ir.Block) else owner.operation.block
    while user.block != block:
        parent = user.parent
        assert parent is not None
        user = parent.operation
    return user


def _check_fits(op: ir.Operation, wanted: list[ir.Attribute]) -> None:
    help = "plan again: this plan was made for another version of the program"
    if len(wanted) != len(op.operands):
        raise PlanError(
            f"'{op.name}' takes {len(op.operands)} operands, but the plan has {len(wanted)}"
            " shardings for it",
            where=where(op),
            help=help,
            code="SHARDC-201",
        )
    for position, attr in enumerate(wanted):
        rank, planned = len(shape_of(op.operands[position])), len(from_attr(attr).dims)
        if rank != planned:
            raise PlanError(
                f"operand {position} of '{op.name}' has {rank} dims, but its planned sharding"
                f" has {planned}",
                where=where(op),
                help=help,
                code="SHARDC-201",
            )
