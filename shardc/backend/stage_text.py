"""Stage programs as MLIR text: one, or all of a stage in one module."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

from shardc.plan.executable import StageProgram


def program_text(program: StageProgram, large_elements_limit: int | None = None) -> str:
    """MLIR text of a stage program.

    Args:
        large_elements_limit: constants with more elements are left out; None: all are printed.
    """
    with make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(program.module)
        return str(module.operation.get_asm(large_elements_limit=large_elements_limit))


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
