"""Which form holds after which pass."""

from collections.abc import Callable

from jax.extend.mlir import ir

from shardc.specs import local, outlined, prepared, sharded, split

# All other passes preserve the form of their input.
FORM_AFTER: dict[str, Callable[[ir.Operation], None]] = {
    "shardc-summarize-calls": prepared.verify,
    "shardc-split-microbatches": split.verify,
    "shardc-plan-stages": split.verify,
    "shardc-outline-stages": outlined.verify,
    "shardc-slice-tokens": outlined.verify,
    "shardc-accumulate-in-loops": outlined.verify,
    "shardc-share-reshards": outlined.verify,
    "shardc-assign-meshes": outlined.verify,
    "shardc-plan-shardings": sharded.verify,
    "shardc-apply-shardings": sharded.verify,
    "shardc-localize": local.verify,
}


def verify_after(pass_name: str, module: ir.Operation) -> None:
    """Checks the form that a pass promises; FormError (SHARDC-999) if it does not hold."""
    if (verify := FORM_AFTER.get(pass_name)) is not None:
        verify(module)
