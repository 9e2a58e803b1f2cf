"""Stage programs as MLIR: their text, one by one or a stage in one module; their collectives."""

from collections import Counter
from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

from shardc.analysis.program.op_classes import COLLECTIVES
from shardc.ir.walk import walk
from shardc.plan.executable import StageProgram


def program_text(program: StageProgram) -> str:
    """MLIR text of a stage program."""
    with make_ir_context(), ir.Location.unknown():
        return str(ir.Module.parse(program.module))


def collectives_of(program: StageProgram) -> Counter[str]:
    """How many ops of each kind of collective a stage program has: name of the op -> number."""
    with make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(program.module)
        return Counter(op.name for op in walk(module.operation) if op.name in COLLECTIVES)


def stage_text(programs: Sequence[StageProgram]) -> str:
    """MLIR text of one module with the functions of `programs`, and their mesh once."""
    with make_ir_context(), ir.Location.unknown():
        whole = ir.Module.create()
        seen: set[str] = set()
        for program in programs:
            part = ir.Module.parse(program.module)
            for op in part.body.operations:
                name = str(ir.StringAttr(op.operation.attributes["sym_name"]).value)
                if name not in seen:
                    seen.add(name)
                    with ir.InsertionPoint(whole.body):
                        op.operation.clone()
        return str(whole.operation.get_asm(enable_debug_info=False))
