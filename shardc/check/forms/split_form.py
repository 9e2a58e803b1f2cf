"""Runs a @main that was split into microbatches, phase by phase, by the definition of the form.

Shares no code with the stage outliner or the runtime: each phase becomes a function of the values
that it takes from arguments and other phases, and NumPy evaluates `shardc.accumulate`.
"""

from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardc.check.forms.engines import Arrays, Engine
from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    call_target,
    get_int,
    get_str,
    phase_of,
)
from shardc.ir.clone import clone_op, inputs
from shardc.ir.walk import body, main_function, ops, terminator
from shardc.plan.function_kind import Phase
from shardc.rules.libraries import called_computations

Values = dict[ir.Value, Any]


class _Phase:
    """One phase as a function; `takes` and `gives` are values of the split module."""

    def __init__(self, module: ir.Operation, phase: Phase, engine: Engine) -> None:
        main = main_function(module)
        mine = [op for op in ops(main) if phase_of(op) is phase]
        special = [op for op in mine if call_target(op) in (ACCUMULATE, MICROBATCH_INDEX)]
        self.accumulates = [op for op in special if call_target(op) == ACCUMULATE]
        plain = [op for op in mine if op not in special]
        made = {r for op in plain for r in op.results}
        self.takes = list(dict.fromkeys(v for op in plain for v in inputs(op) if v not in made))
        used = {v for op in ops(main) if op not in plain for v in inputs(op)}
        used.update(terminator(main).operands)
        self.gives = [v for v in made if v in used]
        if self.gives:
            self.module = self._outlined(module, plain)
            self._run = engine(self.module.operation, main_function(self.module.operation), 1)

    def _outlined(self, module: ir.Operation, plain: list[ir.Operation]) -> ir.Module:
        with module.context, ir.Location.unknown():
            outlined = ir.Module.create()
            with ir.InsertionPoint(outlined.body):
                types = [v.type for v in self.takes], [v.type for v in self.gives]
                function = func.FuncOp("main", ir.FunctionType.get(*types))
            block = function.add_entry_block()
            mapping = dict(zip(self.takes, block.arguments, strict=True))
            with ir.InsertionPoint(block):
                for op in plain:
                    copy = clone_op(op, mapping)
                    mapping.update(zip(op.results, copy.results, strict=True))
                func.ReturnOp([mapping[v] for v in self.gives])
            with ir.InsertionPoint(outlined.body):
                for named in called_computations(module, outlined.operation):
                    named.clone()
        return outlined

    def run(self, values: Values) -> Values:
        if not self.gives:
            return {}
        (results,) = self._run([[values[v] for v in self.takes]])
        return dict(zip(self.gives, results, strict=True))


def run_split(module: ir.Operation, args: Arrays, engine: Engine) -> Arrays:
    """One step: before, every microbatch, accumulate, after.

    Args:
        args: of the types of @main, with batch dims split.
    """
    main = main_function(module)
    count = get_int(module, NUM_MICROBATCHES) or 1
    values: Values = dict(zip(body(main).arguments, args, strict=True))
    phases = {name: _Phase(module, name, engine) for name in Phase}
    values.update(phases[Phase.BEFORE].run(values))
    indices = [op.results[0] for op in ops(main) if call_target(op) == MICROBATCH_INDEX]
    parts: list[Values] = []
    for i in range(count):
        microbatch = values | {index: np.asarray(i, np.int32) for index in indices}
        parts.append(microbatch | phases[Phase.BODY].run(microbatch))
    for op in phases[Phase.BODY].accumulates:
        each = [part[op.operands[0]] for part in parts]
        if get_str(op, KIND) == "concat":
            values[op.results[0]] = np.stack(each, axis=get_int(op, BATCH_DIM) or 0)
        else:
            values[op.results[0]] = each[0] if count == 1 else sum(each[1:], each[0])
    values.update(phases[Phase.AFTER].run(values))
    return [values[v] for v in terminator(main).operands]
