"""Whoever looks at an erased op gets an exception, always (functions and meshes aside).

An op goes with the op around it, and MLIR's bindings do not know that it is gone: to look at it
reads freed memory, which now and then ends the process. Here no memory is freed, so only processes
of one command use this.
"""

from typing import Any

from jax.extend.mlir import ir

from shardc.ir.walk import ops_of

_LOOKED_AT = ("name", "operands", "results", "attributes", "regions", "location", "parent")


def refuse_erased_ops() -> None:
    """From now on, reading a property of an erased op raises a RuntimeError."""
    base: Any = ir.Operation.__mro__[1]  # of `Operation` and of `OpView`
    buried: dict[int, Any] = {}  # by address, which no other op gets
    alone = base.erase
    known = {name: vars(base)[name] for name in _LOOKED_AT}

    def erase(op: ir.Operation | ir.OpView) -> None:
        if op.operation.name in ("func.func", "sdy.mesh"):
            alone(op)
        else:
            _erase(op.operation, buried)

    def checked(name: str) -> property:
        def get(op: ir.Operation | ir.OpView) -> Any:
            if hash(op.operation) in buried:
                raise RuntimeError(f"'{name}' of an erased '{known['name'].fget(op)}' is read")
            return known[name].fget(op)

        return property(get, known[name].fset)

    base.erase = erase
    for name in _LOOKED_AT:
        setattr(base, name, checked(name))


def _erase(op: ir.Operation, buried: dict[int, Any]) -> None:
    gone = _with_inner(op)
    for each in gone:
        for value in each.results:
            users = {use.owner.operation for use in value.uses}
            if not users <= set(gone):
                raise RuntimeError(f"a result of the erased '{each.name}' is still used")
    with op.context, op.location:
        grave = ir.Module.create()
        nothing = ir.Operation.create(
            "shardc.nothing", results=[ir.NoneType.get()], ip=ir.InsertionPoint(grave.body)
        )
    grave.body.append(op)
    for each in gone:
        for position in range(len(each.operands)):
            each.operands[position] = nothing.results[0]
    buried.update((hash(each), grave) for each in gone)


def _with_inner(op: ir.Operation) -> list[ir.Operation]:
    inner = [each for region in op.regions for block in region.blocks for each in ops_of(block)]
    return [op, *(found for each in inner for found in _with_inner(each))]
