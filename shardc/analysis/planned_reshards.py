"""The collectives that a solved stage will run: its reshards, each once, and reductions of ops."""

import math
from collections.abc import Iterator, Sequence

from shardc.analysis.stage_problem import EdgeReshard, StageProblem
from shardc.cost.links import Links
from shardc.cost.reshard import Reshard, reshard
from shardc.ir.tensor_types import itemsize, sum_dtype
from shardc.plan import Collective, Mesh


class PlannedReshards:
    """What is sent between the devices of a stage under a choice of strategies.

    Ops of one function that want a value in the same sharding share one reshard, as
    `shardc-insert-reshards` makes it.

    Args:
        choice: strategy of each node of `built`.
        links: of each axis of `mesh`.
    """

    def __init__(
        self, built: StageProblem, choice: Sequence[int], mesh: Mesh, links: Links
    ) -> None:
        self.built, self.choice, self.mesh, self.links = built, choice, mesh, links

    def sent_bytes(self) -> float:
        """Bytes that one device sends for reshards in a step."""
        return sum(found.num_bytes * info.repeats for info, found in self._reshards())

    def collectives(self) -> tuple[Collective, ...]:
        """Bytes of their results in a step, by kind, axes and type."""
        total: dict[tuple[str, tuple[str, ...], str], int] = {}

        def count(kind: str, axes: Sequence[str], dtype: str, elements: int, repeats: int) -> None:
            key = kind, tuple(name for name, _ in self.mesh.axes if name in axes), dtype
            total[key] = total.get(key, 0) + elements * itemsize(dtype) * repeats

        for info, found in self._reshards():
            elements = math.prod(info.shape)
            for step in found.steps:
                if step.kind == "all_slice":
                    continue
                summed = step.kind in ("all_reduce", "reduce_scatter") or step.result.unreduced
                dtype = sum_dtype(info.dtype) if summed else info.dtype
                local = elements // self.mesh.num_shards(step.result.axes)
                count(step.kind, step.axes, dtype, local, info.repeats)
        for node, axes, shards in self._reductions():
            reduction = self.built.op_reductions[node]
            local = math.prod(reduction.shape) // shards
            count("all_reduce", axes, reduction.dtype, local, reduction.repeats)
        return tuple(Collective(*key, num_bytes) for key, num_bytes in sorted(total.items()))

    def _reshards(self) -> Iterator[tuple[EdgeReshard, Reshard]]:
        """Each reshard that the lowering will emit."""
        known = set()
        for info, (u, v) in zip(self.built.edge_reshards, self.built.problem.edges, strict=False):
            made, used = info.made[self.choice[u]], info.used[self.choice[v]]
            key = info.function, u, info.position, used
            if made == used or key in known:
                continue
            known.add(key)
            sizes = itemsize(info.dtype), itemsize(sum_dtype(info.dtype))
            yield info, reshard(made, used, self.mesh, info.shape, sizes[0], self.links, sizes[1])

    def _reductions(self) -> Iterator[tuple[int, tuple[str, ...], int]]:
        """Node, axes and parts of the result of each op that reduces its own result."""
        for name, nodes_of_ops in self.built.op_nodes.items():
            options_of_ops = self.built.op_strategies[name]
            for nodes, options in zip(nodes_of_ops, options_of_ops, strict=True):
                for node, strategies in zip(nodes, options, strict=True):
                    chosen = strategies[self.choice[node]]
                    if chosen.reduce_axes:
                        shards = self.mesh.num_shards(chosen.results[0].axes)
                        yield node, chosen.reduce_axes, shards
