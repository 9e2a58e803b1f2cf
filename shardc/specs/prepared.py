"""The prepared form: one flat program of StableHLO ops, before any decision."""

from jax.extend.mlir import ir

from shardc.ir.attributes import PHASE, STAGE
from shardc.ir.calls import CALL, called, facts_of, functions_by_name
from shardc.ir.walk import functions, main_function, walk
from shardc.specs.form import expect

FORM = "prepared"


def verify(module: ir.Operation) -> None:
    """Checks a module after `shardc.passes.pipeline.NORMALIZE`.

    There is one public function; no op belongs to CHLO; every remaining call has a summary; no
    value has a dynamic shape; no op has a phase or a stage yet.

    Raises:
        FormError: SHARDC-999.
    """
    public = list(functions(module))
    expect(len(public) == 1, FORM, f"{len(public)} functions run by themselves, not one")
    by_name = functions_by_name(module)
    for op in walk(main_function(module)):
        expect(not op.name.startswith("chlo."), FORM, "an op of CHLO is left", op)
        for attribute in (PHASE, STAGE):
            expect(attribute not in op.attributes, FORM, f"an op has {attribute} already", op)
        if op.name == CALL:
            expect(called(op) in by_name, FORM, f"@{called(op)} is called and not there", op)
            expect(facts_of(op) is not None, FORM, "nothing is known of a call that stays", op)
        for value in op.results:
            if isinstance(value.type, ir.RankedTensorType):
                expect(value.type.has_static_shape, FORM, "a shape is dynamic", op)
