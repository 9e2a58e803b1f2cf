"""Remove host callbacks from the program; their operands become results."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.attributes import (
    HOST_CALLS,
    SILENT_CALLS,
    result_attrs,
    set_result_attrs,
    str_array,
)
from shardc.ir.effects import callback_number, is_host_call
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, terminator, walk, where
from shardc.rewrite.calls.function_signature import return_values, update_type


@dataclass(frozen=True)
class HoistHostCalls(Pass):
    """Removes host callbacks without results (`jax.debug.print`, `jax.debug.callback`).

    The operands of a callback are appended to the results of @main, and `shardc.host_calls` on the
    module lists them: `array<i64: 0, 3, 4>` means that callback 0 takes results 3 and 4 after the
    step. A callback inside a loop or branch cannot be hoisted: it is dropped, and
    `shardc.silent_calls` has its source position. A second run changes nothing.
    """

    name = "shardc-hoist-host-calls"
    never_refuses = "what gives something back stays in the program"

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        calls = [op for op in walk(main) if is_host_call(op) and not op.results]
        if not calls:
            return
        values = list(terminator(main).operands)
        hoisted, silent = [], []
        for call in calls:
            if call.block != body(main):
                silent.append(where(call))
            else:
                positions = range(len(values), len(values) + len(call.operands))
                hoisted.append(ir.DenseI64ArrayAttr.get([callback_number(call), *positions]))
                values += call.operands
            call.erase()
        attrs = result_attrs(main)
        attrs += [{} for _ in range(len(values) - len(attrs))]
        return_values(main, values)
        update_type(main)
        set_result_attrs(main, attrs)
        module.attributes[HOST_CALLS] = ir.ArrayAttr.get(hoisted)
        module.attributes[SILENT_CALLS] = str_array(silent)
