"""The split form: a body that runs once per microbatch, and the ops before and after it."""

from collections.abc import Iterable

from jax.extend.mlir import ir

from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    arg_attrs,
    call_target,
    get_int,
    get_str,
    phase_of,
)
from shardc.ir.clone import inputs
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, main_function, ops, terminator
from shardc.plan.function_kind import Phase
from shardc.specs.form import expect

FORM = "split"
# Phase of an op -> phases of the values that it may use, accumulations aside.
VISIBLE = {
    Phase.BEFORE: {Phase.BEFORE},
    Phase.BODY: {Phase.BEFORE, Phase.BODY},
    Phase.AFTER: {Phase.BEFORE, Phase.AFTER},
}


def verify(module: ir.Operation) -> None:
    """Checks a module after `shardc-split-microbatches`.

    Every op has a phase and uses only values that are visible in it; only accumulations pass values
    from the body to the phase after; batch arguments are split along their marked dims.

    Raises:
        FormError: SHARDC-999.
    """
    count = get_int(module, NUM_MICROBATCHES)
    expect(count is not None and count > 0, FORM, f"{NUM_MICROBATCHES} is {count}")
    main = main_function(module)
    for position, (argument, attrs) in enumerate(
        zip(body(main).arguments, arg_attrs(main), strict=True)
    ):
        if BATCH_DIM in attrs:
            dim, shape = int(ir.IntegerAttr(attrs[BATCH_DIM]).value), shape_of(argument)
            expect(
                dim + 1 < len(shape) and shape[dim] == count,
                FORM,
                f"argument {position} of shape {shape} is no batch of {count} parts at dim {dim}",
            )
    for op in ops(main):
        phase = phase_of(op)
        expect(phase in VISIBLE, FORM, f"an op has the phase {phase}", op)
        assert phase is not None
        _check_uses(op, phase, inputs(op))
        if call_target(op) == ACCUMULATE:
            _check_accumulation(op, phase)
        if call_target(op) == MICROBATCH_INDEX:
            expect(
                phase is Phase.BODY, FORM, "the number of the microbatch is asked outside it", op
            )
    _check_uses(terminator(main), Phase.AFTER, terminator(main).operands)


def _check_uses(op: ir.Operation, phase: Phase, values: Iterable[ir.Value]) -> None:
    for value in values:
        maker = defining_op(value)
        if maker is None:
            continue
        made = phase_of(maker)
        accumulated = call_target(maker) == ACCUMULATE
        if phase is Phase.AFTER and accumulated:
            continue
        expect(not accumulated, FORM, f"an op of the {phase} phase uses an accumulation", op)
        expect(
            made in VISIBLE[phase], FORM, f"an op of the {phase} phase uses a value of {made}", op
        )


def _check_accumulation(op: ir.Operation, phase: Phase) -> None:
    kind = get_str(op, KIND)
    expect(phase is Phase.BODY, FORM, "an accumulation stands outside the body", op)
    expect(kind in ("sum", "concat"), FORM, f"an accumulation is of the kind {kind}", op)
    if kind == "concat":
        dim = get_int(op, BATCH_DIM)
        expect(dim is not None, FORM, f"a concatenation has no {BATCH_DIM}", op)
