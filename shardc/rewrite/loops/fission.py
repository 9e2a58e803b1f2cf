"""Loop fission: two loops over the same iterations; the second reads what the first has stacked."""

from collections.abc import Collection, Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import CountedLoop
from shardc.ir.clone import clone_op
from shardc.ir.walk import ops_of
from shardc.rewrite.loops.stacks import read_stacks, with_stacks


def fission(
    loop: ir.Operation, counted: CountedLoop, values: Sequence[ir.Value], late: Collection[int]
) -> None:
    """Replaces a counted `stablehlo.while` by two.

    The first also carries a stack for each of `values`, one row per iteration; the second reads
    these rows. Results at `late` come from the second loop, all others from the first;
    `shardc.rewrite.loops.carried_values.drop_unused` removes dead results.

    Args:
        values: of the body of the loop; nothing they depend on depends on carries at `late`.
    """
    places = [_place(loop, value) for value in values]
    with ir.InsertionPoint(loop), loop.location:
        first = clone_op(loop, {})
        second = clone_op(loop, {})
    first = with_stacks(first, counted, [_at(first, place) for place in places])
    stacks = list(first.results)[len(loop.results) :]
    read_stacks(second, counted, [_at(second, place) for place in places], stacks)
    for p, result in enumerate(loop.results):
        result.replace_all_uses_with((second if p in late else first).results[p])
    loop.erase()


Place = tuple[int, int]  # position of an op in a body, -1 for the body itself; of its result


def _place(loop: ir.Operation, value: ir.Value) -> Place:
    body = loop.regions[1].blocks[0]
    if isinstance(value.owner, ir.Block):
        return -1, ir.BlockArgument(value).arg_number
    return ops_of(body).index(value.owner.operation), ir.OpResult(value).result_number


def _at(loop: ir.Operation, place: Place) -> ir.Value:
    body, (position, number) = loop.regions[1].blocks[0], place
    return body.arguments[number] if position < 0 else ops_of(body)[position].results[number]
