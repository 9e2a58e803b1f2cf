"""In which order the ops of an update run: one parameter after the other."""

from collections.abc import Callable, Sequence

from jax.extend.mlir import ir

from shardc.ir.tensor_types import num_elements
from shardc.ir.walk import defining_op

Sources = Callable[[ir.Operation], Sequence[ir.Value]]


def leaf_by_leaf(own: Sequence[ir.Operation], sources: Sources) -> list[ir.Operation]:
    """The same ops, those of one parameter together, and each right in front of what needs it.

    An optimizer is written tree by tree: all first moments, then all second moments. Run in that
    order, each step of the arithmetic is held for all parameters at once. Ops belong together that
    meet in a tensor of more than one element; what they need of others through scalars, such as
    the norm of all gradients, comes in front of them.

    Args:
        own: in an order in which they can run.
        sources: the values that an op uses.
    """
    number = {op: i for i, op in enumerate(own)}
    used = [
        [number[maker] for value in sources(op) if (maker := defining_op(value)) in number]
        for op in own
    ]
    needed = {j for made in used for j in made}
    leaf = _leaves(own, sources)
    last_of: dict[int, list[int]] = {}
    for i in range(len(own)):
        last_of.setdefault(leaf[i], [])
        if i not in needed:
            last_of[leaf[i]].append(i)
    order: dict[int, None] = {}
    for sinks in last_of.values():
        for sink in sinks:
            _add(sink, used, order)
    return [own[i] for i in order]


def _add(sink: int, used: Sequence[Sequence[int]], order: dict[int, None]) -> None:
    """Puts what `sink` needs, and then `sink`, behind what is in `order`."""
    stack = [(sink, iter(used[sink]))]
    while stack:
        i, rest = stack[-1]
        after = next((j for j in rest if j not in order), None)
        if after is None:
            order[i] = None
            stack.pop()
        else:
            stack.append((after, iter(used[after])))


def _leaves(own: Sequence[ir.Operation], sources: Sources) -> list[int]:
    """For each op a number that it shares with those that it meets in tensors."""
    parent = list(range(len(own)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    met: dict[ir.Value, int] = {}
    for i, op in enumerate(own):
        for value in [*sources(op), *op.results]:
            if num_elements(value) > 1:
                low, high = sorted((find(i), find(met.setdefault(value, i))))
                parent[high] = low
    return [find(i) for i in range(len(own))]
