"""What a program must not contain: host calls, stateful ops, foreign dialects, custom layouts."""

from jax.extend.mlir import ir

from shardc.errors import ImportFileError, InputError
from shardc.ir.attributes import arg_attrs, call_target, result_attrs
from shardc.ir.constants import is_complex
from shardc.ir.effects import has_side_effect, is_host_call, must_run_once
from shardc.ir.walk import walk, where

_LAYOUT = "mhlo.layout_mode"
_DIALECTS = {"builtin", "chlo", "func", "sdy", "stablehlo"}


def refuse_host_calls(module: ir.Operation, *, can_call: bool = False) -> int:
    """ImportFileError (SHARDC-123) if a program calls back into the process that wrote it.

    Args:
        can_call: that process is this one; then only calls that must run once and within the step
            are refused (an `io_callback` with results).
    Returns:
        Number of host calls.
    """
    count = 0
    for op in walk(module):
        if is_host_call(op):
            count += 1
            if not can_call or (len(op.results) > 0 and has_side_effect(op, unmarked=True)):
                raise ImportFileError(
                    f"the program calls the host ('{call_target(op) or op.name}')",
                    where=where(op),
                    code="SHARDC-123",
                    help="return the value from the step and print or save it outside",
                )
    return count


def refuse_stateful_ops(module: ir.Operation) -> None:
    """ImportFileError (SHARDC-126) if an op may run only once: a plan clones ops that stages and
    microbatches share, and assumes that all clones compute the same."""
    for op in walk(module):
        if must_run_once(op) and not is_host_call(op):
            raise ImportFileError(
                f"'{call_target(op) or op.name}' gives other results, or does more than give them,"
                " each time it runs",
                where=where(op),
                code="SHARDC-126",
                help="draw random numbers from a key (jax.random), and call what has effects"
                " outside of the step",
            )


def refuse_layouts(main: ir.Operation) -> None:
    """InputError (SHARDC-205) if the caller requires custom layouts of arguments or results."""
    for what, entries in (("argument", arg_attrs(main)), ("result", result_attrs(main))):
        for n, attrs in enumerate(entries):
            if _LAYOUT in attrs and str(ir.StringAttr(attrs[_LAYOUT]).value) != "default":
                raise InputError(
                    f"{what} {n} is requested in the layout {attrs[_LAYOUT]}, and shardc leaves"
                    " the order of a value's elements in memory to XLA",
                    help="give in_shardings and out_shardings without jax.experimental.layout",
                    code="SHARDC-205",
                )


def refuse_other_dialects(module: ir.Operation) -> None:
    """Refuses contents of a file that JAX never emits for a program of one device.

    Raises:
        ImportFileError: SHARDC-120, an op of another dialect, or a constant that is a resource;
            124, a shape that is not static.
    """
    for op in walk(module):
        if op.name.split(".")[0] not in _DIALECTS:
            raise ImportFileError(
                f"'{op.name}' is not a StableHLO op",
                where=where(op),
                help="convert the module to StableHLO first, with the tools of the dialect",
            )
        for result in op.results:
            if not _is_known(result.type):
                raise ImportFileError(
                    f"a result of '{op.name}' is a {result.type}, and only tensors of known shape"
                    " can be planned",
                    where=where(op),
                    code="SHARDC-124",
                    help="export the program with concrete shapes",
                )
        if op.name == "stablehlo.constant" and _is_resource(op):
            raise ImportFileError(
                "a constant is a resource, which XLA does not read",
                where=where(op),
                help="print the module with its constants, or pass them as arguments",
            )


def _is_known(type_: ir.Type) -> bool:
    if isinstance(type_, ir.RankedTensorType):
        return bool(type_.has_static_shape)
    return not isinstance(type_, ir.UnrankedTensorType)


def _is_resource(constant: ir.Operation) -> bool:
    if is_complex(constant.results[0]):  # the bindings cannot read the value of these
        return False
    return not isinstance(constant.attributes["value"], ir.DenseElementsAttr)
