"""Pin the layouts that XLA's libraries require."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.attributes import call_target
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import all_functions, walk

CONSTRAINT = "LayoutConstraint"  # XLA's custom call, as jax.experimental.layout emits it


@dataclass(frozen=True)
class PinLayouts(Pass):
    """Constrains operands and results of Fourier transforms to row-major layout.

    XLA for CPUs (as of jaxlib 0.12.0) lets the neighbours of an FFT choose its layout, and then
    fails on any but the row-major one. A second run changes nothing.
    """

    name = "shardc-pin-layouts"
    never_refuses = "a constraint on a layout is valid wherever its value is"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in list(walk(function)):
                if op.name == "stablehlo.fft":
                    with op.location:
                        _pin(op)


def _pin(op: ir.Operation) -> None:
    operand, result = op.operands[0], op.results[0]
    maker = operand.owner
    if isinstance(maker, ir.Block) or call_target(maker.operation) != CONSTRAINT:
        with ir.InsertionPoint(op):
            op.operands[0] = _row_major(operand).results[0]
    users = [use.owner.operation for use in result.uses]
    if any(call_target(user) != CONSTRAINT for user in users):
        with ir.InsertionPoint.after(op):
            pin = _row_major(result)
        result.replace_all_uses_except(pin.results[0], pin)


def _row_major(value: ir.Value) -> ir.Operation:
    order = ", ".join(str(dim) for dim in reversed(range(len(shape_of(value)))))
    layout = ir.Attribute.parse(f"[dense<[{order}]> : tensor<{len(shape_of(value))}xindex>]")
    return ir.Operation.create(
        "stablehlo.custom_call",
        results=[value.type],
        operands=[value],
        attributes={
            "call_target_name": ir.StringAttr.get(CONSTRAINT),
            "backend_config": ir.StringAttr.get(""),
            "operand_layouts": layout,
            "result_layouts": layout,
        },
    )
