"""Let loops read rows of a stack in place instead of from a transposed copy."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.attributes import SHARDING
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import all_functions, defining_op, is_inside, walk


@dataclass(frozen=True)
class ReadRowsInPlace(Pass):
    """Sinks the transpose of a stack below the read of a row, into the loop.

    If layers are stacked along another dim than the first, `lax.scan` moves that dim to the front,
    and XLA keeps the transposed copy of all layers live beside the parameters during the loop.
    Loops with shardings of their own are left alone. A second run changes nothing.

        %t = transpose %w, dims = [1, 0, 2]
        while { %row = dynamic_slice %t, %i, %0, %0, sizes = [1, 4, 4] }
    becomes
        while { %part = dynamic_slice %w, %0, %i, %0, sizes = [4, 1, 4]
                %row = transpose %part, dims = [1, 0, 2] }
    """

    name = "shardc-read-rows-in-place"
    never_refuses = "a row of a value that no transpose makes is read as before"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            loops = [op for op in walk(function) if op.name == "stablehlo.while"]
            for loop in loops:  # reads are erased, loops are not
                if SHARDING not in loop.attributes:
                    for op in list(walk(loop)):
                        if op.name == "stablehlo.dynamic_slice":
                            _read_in_place(op, loop)


def _read_in_place(read: ir.Operation, loop: ir.Operation) -> None:
    """Sinks the transpose outside of `loop` below the read of its result."""
    stack, *starts = read.operands
    transpose = defining_op(stack)
    if transpose is None or transpose.name != "stablehlo.transpose" or is_inside(transpose, loop):
        return
    order = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
    sizes = shape_of(read.results[0])
    place = [order.index(dim) for dim in range(len(order))]  # of each dim of what is transposed
    with ir.InsertionPoint(read), read.location:
        part = stablehlo.DynamicSliceOp(
            transpose.operands[0],
            [starts[dim] for dim in place],
            ir.DenseI64ArrayAttr.get([sizes[dim] for dim in place]),
        ).result
        row = stablehlo.TransposeOp(part, ir.DenseI64ArrayAttr.get(order)).result
    read.results[0].replace_all_uses_with(row)
    read.erase()
