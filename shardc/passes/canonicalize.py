"""Remove dead ops and empty operands, and bring constants out of regions."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.attributes import get_int
from shardc.ir.pass_manager import Pass, run_registered
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import walk


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Drops empty operands of concatenations, then runs MLIR's `canonicalize`: dead ops disappear,
    constants move out of loops and branches.

    The StableHLO of the wheel folds no more than that. XLA as of jaxlib 0.11.2 ends the process on
    a concatenation with an empty operand inside `shard_map`. A second run changes nothing.
    """

    name = "shardc-canonicalize"
    never_refuses = "simplifying a valid module cannot fail"

    def apply(self, module: ir.Operation) -> None:
        for op in list(walk(module)):
            if op.name == "stablehlo.concatenate":
                _drop_empty(op)
        run_registered(module, "canonicalize")


def _drop_empty(op: ir.Operation) -> None:
    dim = get_int(op, "dimension") or 0
    filled = [value for value in op.operands if shape_of(value)[dim] > 0]
    if len(filled) == len(op.operands):
        return
    if len(filled) > 1:
        with ir.InsertionPoint(op), op.location:
            attributes = {name: op.attributes[name] for name in op.attributes}
            new = ir.Operation.create(
                op.name, results=[op.results[0].type], operands=filled, attributes=attributes
            ).results[0]
    else:
        new = filled[0] if filled else op.operands[0]
    op.results[0].replace_all_uses_with(new)
    op.erase()
