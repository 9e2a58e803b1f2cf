"""The order of the ops of an update: one parameter after the other."""

from collections.abc import Callable, Sequence

from jax.extend.mlir import ir

from shardc.ir.tensor_types import num_elements
from shardc.ir.walk import defining_op

Sources = Callable[[ir.Operation], Sequence[ir.Value]]


def leaf_by_leaf(own: Sequence[ir.Operation], sources: Sources) -> list[ir.Operation]:
    """The same ops, grouped by parameter, each right before its first user.

    Optimizers compute tree by tree: all first moments, then all second moments. In that order each
    intermediate value is live for all parameters at once. Ops belong to one group if they share a
    tensor of more than one element; ops that they depend on through scalars, such as the norm of
    all gradients, come before them.

    Args:
        own: in a topological order.
        sources: the operands of an op.
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
    """Appends the ops that `sink` depends on, and then `sink`, to `order`."""
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
    """For each op the number of its group: of the ops that it shares tensors with."""
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
