"""What ops hand on of what reaches them, through loops and branches as well."""

from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import IDENTITIES
from shardc.ir.clone import inputs
from shardc.ir.walk import CONTROL_FLOW, block_terminator, ops_of


def handed_on[Mark](
    op: ir.Operation,
    marks: MutableMapping[ir.Value, frozenset[Mark]],
    passes: Callable[[ir.Operation], bool],
    used: Sequence[ir.Value] | None = None,
) -> list[frozenset[Mark]]:
    """The marks of each result: those of what it is made of by ops that `passes`.

    A loop hands on what its body does, in however many iterations; branches what any one does.

    Args:
        marks: of values around the op, not changed; those that have none may be missing.
        passes: whether results of an op, but for loops and branches, have the marks of all it uses.
        used: the inputs of `op`, if they are known.
    """
    if op.name in IDENTITIES:
        return [marks.get(value, frozenset()) for value in op.operands]
    if used is None:
        used = inputs(op)
    reaching: frozenset[Mark] = frozenset().union(*(marks.get(value, ()) for value in used))
    if reaching and op.name in CONTROL_FLOW:
        return of_regions(op, ChainMap({}, marks), passes)
    return [reaching if passes(op) else frozenset()] * len(op.results)


def of_regions[Mark](
    op: ir.Operation,
    marks: MutableMapping[ir.Value, frozenset[Mark]],
    passes: Callable[[ir.Operation], bool],
) -> list[frozenset[Mark]]:
    """The marks of each result of a loop or of branches.

    Args:
        marks: as in `handed_on`, and of values inside; those that are handed on are added.
    """
    blocks = [region.blocks[0] for region in op.regions]
    if op.name != "stablehlo.while":
        each = [_of_block(block, marks, passes) for block in blocks]
        return [frozenset().union(*given) for given in zip(*each, strict=True)]
    carried: list[frozenset[Mark]] = [marks.get(value, frozenset()) for value in op.operands]
    while True:
        marks.update(zip(blocks[1].arguments, carried, strict=True))
        ends = _of_block(blocks[1], marks, passes)
        more = [start | end for start, end in zip(carried, ends, strict=True)]
        if more == carried:
            return carried
        carried = more


def _of_block[Mark](
    block: ir.Block,
    marks: MutableMapping[ir.Value, frozenset[Mark]],
    passes: Callable[[ir.Operation], bool],
) -> list[frozenset[Mark]]:
    for op in ops_of(block)[:-1]:
        handed = zip(op.results, handed_on(op, marks, passes), strict=True)
        marks.update({result: found for result, found in handed if found})
    return [marks.get(value, frozenset()) for value in block_terminator(block).operands]
