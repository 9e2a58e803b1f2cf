"""What ops do besides computing results: side effects, and calls of the host process."""

import re

from jax.extend.mlir import ir

from shardc.ir.attributes import HOST_CALLS, PLACEMENTS, SILENT_CALLS, call_target, named_attributes
from shardc.ir.walk import walk

MARK = "has_side_effect"
_STATEFUL = frozenset(f"stablehlo.{name}" for name in ("rng", "send", "recv"))
# Calls that are marked as effects only to keep them alive.
_INERT = frozenset(("annotate_device_placement", "shape_assertion", "dce_sink"))
_TARGET = re.compile(r"python_\w*callback|callback_custom_call")


def has_side_effect(op: ir.Operation, *, unmarked: bool = False) -> bool:
    """Whether a custom call is marked as having side effects; `unmarked` without a mark."""
    return bool(ir.BoolAttr(op.attributes[MARK]).value) if MARK in op.attributes else unmarked


def must_run_once(op: ir.Operation) -> bool:
    """Whether an op is nondeterministic or has side effects on the device: a clone on another stage
    or in another microbatch would not be equivalent."""
    if call_target(op) in _INERT:
        return False
    return op.name in _STATEFUL or has_side_effect(op)


def is_host_call(op: ir.Operation) -> bool:
    """Whether an op is a callback of JAX's, or moves data to and from the host."""
    target = call_target(op) or op.name
    return bool(_TARGET.search(target)) or target in ("stablehlo.infeed", "stablehlo.outfeed")


def is_pure(op: ir.Operation) -> bool:
    """Whether an op, with its regions, only computes results, on the device."""
    return not any(must_run_once(each) or is_host_call(each) for each in (op, *walk(op)))


def callback_number(op: ir.Operation) -> int:
    """Index of a callback op in the program's list of callbacks."""
    config = named_attributes(op.attributes["mhlo.backend_config"])
    return int(ir.IntegerAttr(config["index"]).value)


def hoisted_calls(module: ir.Operation) -> list[tuple[int, tuple[int, ...]]]:
    """The calls that shardc-hoist-host-calls hoisted: callback number, and the results it takes."""
    if HOST_CALLS not in module.attributes:
        return []
    numbers = [
        list(ir.DenseI64ArrayAttr(each)) for each in ir.ArrayAttr(module.attributes[HOST_CALLS])
    ]
    return [(index, tuple(positions)) for index, *positions in numbers]


def silent_calls(module: ir.Operation) -> list[str]:
    """Source positions of the calls that it could not hoist."""
    if SILENT_CALLS not in module.attributes:
        return []
    return [
        str(ir.StringAttr(each).value) for each in ir.ArrayAttr(module.attributes[SILENT_CALLS])
    ]


def placements(module: ir.Operation) -> list[str]:
    """Source positions of intermediate values that the program places in another memory."""
    if PLACEMENTS not in module.attributes:
        return []
    return [str(ir.StringAttr(each).value) for each in ir.ArrayAttr(module.attributes[PLACEMENTS])]
