"""Remove placements of intermediate values in other memories."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.attributes import PLACEMENTS, call_target, named_attributes, str_array
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, terminator, walk, where

_TARGET = "annotate_device_placement"
_ATTRIBUTES, _PLACEMENT = "mhlo.frontend_attributes", "_xla_buffer_placement"


@dataclass(frozen=True)
class DropPlacements(Pass):
    """Replaces every `annotate_device_placement` by its operand: values stay in device memory.

    The numbers do not change. For a result of @main nothing is lost: the caller moves it to the
    memory named by the result's `mhlo.memory_kind`. `shardc.placements` on the module lists the
    source positions of the others, except moves back to the device. A second run changes nothing.
    """

    name = "shardc-drop-placements"
    never_refuses = "a value that lies in another memory than was asked for is the same value"

    def apply(self, module: ir.Operation) -> None:
        inside = []
        for function in functions(module):
            returned = set(terminator(function).operands)
            for op in [op for op in walk(function) if call_target(op) == _TARGET]:
                if op.results[0] not in returned and _kind(op) != "device":
                    inside.append(where(op))
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
        if inside:
            module.attributes[PLACEMENTS] = str_array(inside)


def _kind(op: ir.Operation) -> str:
    """The memory where an op places its operand."""
    if _ATTRIBUTES not in op.attributes:
        return ""
    known = named_attributes(op.attributes[_ATTRIBUTES])
    return str(ir.StringAttr(known[_PLACEMENT]).value) if _PLACEMENT in known else ""
