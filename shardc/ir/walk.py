"""Traversal of a module: functions, ops of a block, nested ops; and source positions."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.solver.interrupt import poll

_OWN_FILES = str(Path(__file__).parents[1]) + "/"


def functions(module: ir.Operation) -> Iterator[ir.Operation]:
    """The public functions of a module, in order.

    After inlining, private functions belong to the custom calls that refer to them.
    """
    return (f for f in all_functions(module) if not is_private(f))


def all_functions(module: ir.Operation) -> Iterator[ir.Operation]:
    """The func.func ops of a module, in order."""
    for op in list(module.regions[0].blocks[0].operations):
        if op.operation.name == "func.func":
            yield op.operation


def is_private(function: ir.Operation) -> bool:
    """Whether only other functions of the module can call this one."""
    if "sym_visibility" not in function.attributes:
        return False
    return str(ir.StringAttr(function.attributes["sym_visibility"]).value) == "private"


def body(function: ir.Operation) -> ir.Block:
    """The single block of a function."""
    return function.regions[0].blocks[0]


def ops(function: ir.Operation) -> list[ir.Operation]:
    """The top-level ops of a function's body without its terminator (a list: safe to edit)."""
    return ops_of(body(function))[:-1]


RETURN = "stablehlo.return"  # ends a region
# Control flow: ops whose regions execute and may capture values.
CONTROL_FLOW = ("stablehlo.while", "stablehlo.if", "stablehlo.case")


def nested_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops of a function in pre-order, without its terminator: the ops in regions of control
    flow, each region's `stablehlo.return` included, follow their parent op.

    All of them except the returns have shardings.
    """
    found: list[ir.Operation] = []

    def add(op: ir.Operation) -> None:
        found.append(op)
        if op.name in CONTROL_FLOW:
            for region in op.regions:
                for inner in region.blocks[0].operations:
                    add(inner.operation)

    for op in ops(function):
        add(op)
    return found


def planned_ops(function: ir.Operation) -> list[ir.Operation]:
    """`nested_ops` without the returns of regions."""
    return [op for op in nested_ops(function) if op.name != RETURN]


def ops_of(block: ir.Block) -> list[ir.Operation]:
    """The ops of a block with its terminator (a list: safe to edit)."""
    return [op.operation for op in block.operations]


def terminator(function: ir.Operation) -> ir.Operation:
    """The func.return of a function."""
    return block_terminator(body(function))


def block_terminator(block: ir.Block) -> ir.Operation:
    """The terminator of a block."""
    return block.operations[len(block.operations) - 1].operation


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The op that defines `value`; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def parent_of(value: ir.Value) -> ir.Operation:
    """The op whose region has the block argument `value`."""
    return ir.BlockArgument(value).owner.owner.operation


def is_inside(op: ir.Operation, outer: ir.Operation) -> bool:
    """Whether `op` is nested in a region of `outer`, at any depth."""
    parent = op.parent
    while parent is not None and parent.operation != outer:
        parent = parent.operation.parent
    return parent is not None


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Every op nested in `op`, depth first, without `op` itself."""
    for region in op.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                poll()
                own = inner.operation
                yield own
                if len(own.regions):
                    yield from walk(own)


def symbol(function: ir.Operation) -> str:
    """Name of a function or other symbol."""
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def main_function(module: ir.Operation) -> ir.Operation:
    """The function to run: `@main`, or the only public one; ImportFileError if there is none."""
    public = list(functions(module))
    named = [f for f in public if symbol(f) == "main"]
    if named or len(public) == 1:
        return (named or public)[0]
    raise ImportFileError(
        f"the module has {len(public)} public functions and none is called 'main'",
        code="SHARDC-121",
        help="make one function public and the others private, or name it @main",
    )


def where(op: ir.Operation) -> str:
    """Human-readable source position of `op`: `train.py:41 (step)`, or the op's location."""
    return readable_location(op.location)


def where_step(function: ir.Operation) -> str | None:
    """Source position of a function, or else of the first op in it that has one; None if none has.

    JAX gives functions no position.
    """
    return _first_position(itertools.chain([function], walk(function)))


def where_used(value: ir.Value) -> str | None:
    """Source position of the first op that uses `value` and has one; None if none has."""
    users = {use.owner.operation for use in value.uses}
    if not users:
        return None
    function = next(iter(users))
    while function.name != "func.func" and function.parent is not None:
        function = function.parent.operation
    return _first_position(op for op in walk(function) if op in users)


def _first_position(found: Iterable[ir.Operation]) -> str | None:
    return next((where(op) for op in found if any(positions(op.location))), None)


def positions(location: ir.Location) -> Iterator[tuple[str, int, str]]:
    """(file, line, name around it or "") of a location, innermost call first."""
    match location:
        case ir.FileLineColLoc():
            if location.start_line > 0:
                yield location.filename, location.start_line, ""
        case ir.NameLoc():
            for file, line, name in positions(location.child_loc):
                yield file, line, name or location.name_str
        case ir.CallSiteLoc():
            yield from positions(location.callee)
            yield from positions(location.caller)
        case ir.FusedLoc():
            for part in location.locations:
                assert isinstance(part, ir.Location)
                yield from positions(part)


def names_of(op: ir.Operation) -> tuple[str, ...]:
    """The names by which a pattern may match `op`: its name, with and without the dialect, its JAX
    paths such as `jit(step)/mlp/dot_general`, and its source position."""
    return (op.name, op.name.partition(".")[2], *location_names(op.location), where(op))


def location_names(location: ir.Location) -> Iterator[str]:
    """The names that JAX gave a location, such as `jit(step)/mlp/dot_general`, innermost first."""
    match location:
        case ir.NameLoc():
            yield location.name_str
            yield from location_names(location.child_loc)
        case ir.CallSiteLoc():
            yield from location_names(location.callee)
        case ir.FusedLoc():
            for part in location.locations:
                assert isinstance(part, ir.Location)
                yield from location_names(part)


def readable_location(location: ir.Location) -> str:
    """The innermost position in the user's own files: `train.py:41 (step)`, `step.mlir:9`.

    A location without any position gives its name, such as `jit(step)/add`.
    """
    places = [place for place in positions(location) if not place[0].startswith(_OWN_FILES)]
    if not places:
        return location.name_str if isinstance(location, ir.NameLoc) else "an unknown place"
    users = [place for place in places if "site-packages" not in place[0]]
    file, line, name = (users or places)[0]
    label = name.rsplit("<locals>.", 1)[-1]
    position = f"{file.rsplit('/', 1)[-1]}:{line}"
    return f"{position} ({label})" if label and "/" not in label else position
