"""What ops do besides giving their results."""

from jax.extend.mlir import ir

MARK = "has_side_effect"


def has_side_effect(op: ir.Operation, *, unmarked: bool = False) -> bool:
    """Whether a custom call is marked to do more than give its results; `unmarked` without mark."""
    return bool(ir.BoolAttr(op.attributes[MARK]).value) if MARK in op.attributes else unmarked
