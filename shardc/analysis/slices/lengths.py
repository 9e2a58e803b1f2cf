"""The number of tokens of each slice: later slices get fewer, as their queries meet more keys."""

import itertools
import math
from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.flops import heavy_flops
from shardc.analysis.slices.held_parts import Role, Roles
from shardc.analysis.slices.recipes import Finish, Make, TokenSlices
from shardc.ir.attributes import STAGE, get_int
from shardc.ir.walk import defining_op
from shardc.solver.pipeline.slices import slice_lengths

BLOCKS_PER_SLICE = 8  # at most, where there are many tokens


def slice_edges(slices: TokenSlices, count: int) -> list[int]:
    """The first token of each slice, then the number of tokens: the lengths with the shortest time
    of a first microbatch through the pipeline, by the FLOPs of products.

    Lengths are multiples of a power of two, so that sizes stay even. Without products, slices are
    equal.
    """
    length, work = slices.length, _work(slices)
    if not work:
        return [i * length // count for i in range(count + 1)]
    block = 1 << max(-(-length // (BLOCKS_PER_SLICE * count)) - 1, 0).bit_length()
    edges = [*range(0, length, block), length]

    def flops(first: int, end: int) -> int:
        """FLOPs of the slice from one block to another, times `length` squared to stay integral."""
        rows = {Role.OWN: edges[end] - edges[first], Role.PAST: edges[end]}
        return sum(
            num * math.prod(rows[role] for role in roles) * length ** (2 - len(roles))
            for roles, num in work.items()
        )

    stages = len({get_int(function, STAGE) for function in slices.functions})
    lengths, _ = slice_lengths(len(edges) - 1, stages, flops, count)
    return [edges[block] for block in itertools.accumulate(lengths, initial=0)]


def _work(slices: TokenSlices) -> dict[tuple[Role, ...], int]:
    """FLOPs of whole sequences by how a slice scales them: with its own rows, with all rows so far,
    or with pairs of both."""
    found: dict[tuple[Role, ...], int] = {}
    for of in slices.functions.values():
        for value, recipes in of.recipes.items():
            op = defining_op(value)
            flops = 0 if op is None else heavy_flops(op)
            if not flops or ir.OpResult(value).result_number > 0:
                continue
            for roles, recipe in recipes.items():
                if isinstance(recipe, Make | Finish):
                    key = _present([*recipe.operands, roles])
                    if key:
                        found[key] = found.get(key, 0) + flops
    return found


def _present(rows: Sequence[Roles]) -> tuple[Role, ...]:
    there = {role for roles in rows for role in roles}
    return tuple(role for role in Role if role in there)
