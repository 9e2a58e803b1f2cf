"""Remove collectives among one device."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.op_classes import COLLECTIVES, POSITIONS
from shardc.errors import ImportFileError
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, walk, where

_PERMUTE = "stablehlo.collective_permute"
_COUNTS = ("mhlo.num_partitions", "mhlo.num_replicas")


@dataclass(frozen=True)
class DropCollectives(Pass):
    """Replaces collectives among one device by their operands, and its position by zero.

    `jax.shard_map` over a mesh of one device, or with sums over an axis of size 1, emits them.
    Collectives among several devices are refused (SHARDC-125), except inside manual computations,
    which other passes handle. A second run changes nothing.
    """

    name = "shardc-drop-collectives"

    def apply(self, module: ir.Operation) -> None:
        alone = all(
            name in module.attributes and int(ir.IntegerAttr(module.attributes[name]).value) == 1
            for name in _COUNTS
        )
        for function in functions(module):
            for op in [op for op in walk(function) if op.name in COLLECTIVES | POSITIONS]:
                if _is_manual(op):
                    continue
                if not (alone if op.name in POSITIONS else _is_of_one(op)):
                    raise ImportFileError(
                        f"the program communicates between devices ('{op.name}')",
                        where=where(op),
                        code="SHARDC-125",
                        help="give the program of one device, as `jax.jit` without shardings"
                        " lowers it",
                    )
                _drop(op)


def _drop(op: ir.Operation) -> None:
    if op.name in POSITIONS:
        (result,) = op.results
        number = ir.IntegerAttr.get(ir.RankedTensorType(result.type).element_type, 0)
        with ir.InsertionPoint(op), op.location:
            zero = ir.DenseElementsAttr.get_splat(result.type, number)
            result.replace_all_uses_with(stablehlo.ConstantOp(zero).result)
    else:
        for result, operand in zip(op.results, op.operands, strict=True):
            result.replace_all_uses_with(operand)
    op.erase()


def _is_of_one(op: ir.Operation) -> bool:
    """Whether every group of devices has one member."""
    if op.name == _PERMUTE:
        pairs = ir.DenseIntElementsAttr(op.attributes["source_target_pairs"])
        return len(pairs) == 2 and pairs[0] == pairs[1]
    groups = op.attributes["replica_groups"]
    shape = ir.RankedTensorType(ir.DenseIntElementsAttr(groups).type).shape
    same = [v.type for v in op.operands] == [v.type for v in op.results]
    return same and shape[-1] == 1


def _is_manual(op: ir.Operation) -> bool:
    above: ir.Operation | ir.OpView | None = op.parent
    while above is not None:
        if above.operation.name == "sdy.manual_computation":
            return True
        above = above.operation.parent
    return False
