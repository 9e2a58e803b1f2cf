"""Shared parts of the form verifiers: the error and how to raise it."""

from collections.abc import Iterator

from jax.extend.mlir import ir

from shardc.errors import ShardcError
from shardc.ir.attributes import arg_attrs, result_attrs
from shardc.ir.walk import body, terminator, where


class FormError(ShardcError):
    """A module is not in the form that a pass promises (SHARDC-999): a bug in shardc."""

    def __init__(self, form: str, what: str, op: ir.Operation | None = None) -> None:
        super().__init__(
            f"the module is not {form}: {what}",
            where=None if op is None else f"'{op.name}' at {where(op)}",
            help="this is a bug in shardc; please report it with the program",
        )


def expect(holds: bool, form: str, what: str, op: ir.Operation | None = None) -> None:
    """Raises FormError unless `holds`."""
    if not holds:
        raise FormError(form, what, op)


def edges(function: ir.Operation) -> Iterator[tuple[ir.DictAttr, ir.Value]]:
    """Each argument and each result of a function, with its attributes."""
    yield from zip(arg_attrs(function), body(function).arguments, strict=True)
    yield from zip(result_attrs(function), terminator(function).operands, strict=True)
