"""Forward propagation of marks through ops, loops and branches."""

from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import IDENTITIES
from shardc.ir.clone import inputs
from shardc.ir.walk import CONTROL_FLOW, block_terminator, ops_of


def propagated[Mark](
    op: ir.Operation,
    marks: MutableMapping[ir.Value, frozenset[Mark]],
    passes: Callable[[ir.Operation], bool],
    used: Sequence[ir.Value] | None = None,
) -> list[frozenset[Mark]]:
    """The marks of each result: the union over the inputs if `passes(op)`, else none.

    Marks flow through a loop to the fixed point over its carried values, and out of a branch op
    from every branch.

    Args:
        marks: of values in scope, not changed; values without marks may be missing.
        passes: whether the results of an op other than a loop or branch take the marks of its
            inputs.
        used: the inputs of `op`, if the caller has them.
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
        marks: as in `propagated`; the marks of values inside are added.
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
        found = zip(op.results, propagated(op, marks, passes), strict=True)
        marks.update({result: own for result, own in found if own})
    return [marks.get(value, frozenset()) for value in block_terminator(block).operands]
