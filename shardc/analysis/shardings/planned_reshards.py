"""The collectives of a solved stage: its reshards, without duplicates, and reductions by ops."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardc.analysis.program.op_classes import ON_THE_FLY, PRODUCTS
from shardc.analysis.shardings.stage_problem import EdgeReshard, StageProblem
from shardc.cost.model import CostModel
from shardc.cost.reshard import Reshard, reshard
from shardc.ir.tensor_types import itemsize, sum_dtype
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.predicted import Collective
from shardc.solver.problem.problem import Ints


class Buffer(NamedTuple):
    """Bytes on one device at the times [start, end) of a stage's step."""

    num_bytes: int
    start: int
    end: int


def held_bytes(buffers: Sequence[Buffer], end: int) -> Ints:
    """Bytes of all `buffers` together at each of the times 0 .. end - 1."""
    change = np.zeros(end + 1, np.int64)
    for each in buffers:
        change[each.start] += each.num_bytes
        change[min(each.end, end)] -= each.num_bytes
    return np.cumsum(change)[:end]


@dataclass(frozen=True)
class PlannedReshard:
    """One reshard that the lowering will emit.

    Attributes:
        source: the node that defines the value.
        made: its sharding there.
        users: the nodes that use the result, each with its `EdgeReshard`.
        found: the steps.
    """

    source: int
    made: TensorSharding
    users: tuple[tuple[int, EdgeReshard], ...]
    found: Reshard

    @property
    def info(self) -> EdgeReshard:
        """The facts on which all users agree."""
        return self.users[0][1]


class PlannedReshards:
    """The communication inside a stage under a choice of strategies.

    Ops of one function that require a value in the same sharding share one reshard, as in
    `shardc-insert-reshards`.

    Args:
        choice: strategy of each node of `built`.
        model: cost model of the cluster that contains `mesh`.
    """

    def __init__(
        self, built: StageProblem, choice: Sequence[int], mesh: Mesh, model: CostModel
    ) -> None:
        self.built, self.choice, self.mesh = built, choice, mesh
        self.model, self.links = model, model.links(mesh)
        self.heavy = _heavy_nodes(built)
        self.values = frozenset(built.value_nodes.values())
        self.reshards = tuple(self._reshards())

    def sent_bytes(self) -> float:
        """Bytes that one device sends for reshards in a step."""
        return sum(each.found.num_bytes * each.info.repeats for each in self.reshards)

    def collectives(self) -> tuple[Collective, ...]:
        """Bytes of their results in a step, by kind, axes and type."""
        return _totals((each, repeats) for _, repeats, each in self._collectives())

    def collectives_of(self, function: str) -> dict[int, tuple[Collective, ...]]:
        """The collectives of one function, by how often they run per step; the bytes are those of
        one run."""
        by_repeats: dict[int, list[tuple[Collective, int]]] = {}
        for name, repeats, each in self._collectives():
            if name == function:
                by_repeats.setdefault(repeats, []).append((each, 1))
        return {repeats: _totals(found) for repeats, found in by_repeats.items()}

    def _collectives(self) -> Iterator[tuple[str, int, Collective]]:
        """Function, runs per step, and what one run sends."""
        for each in self.reshards:
            for step in each.found.steps:
                if step.kind != "all_slice":
                    sums = step.kind in ("all_reduce", "reduce_scatter") or step.result.unreduced
                    dtype = self._sum_dtype(each.info.dtype) if sums else each.info.dtype
                    local = self._bytes(each.info.shape, step.result, dtype)
                    sent = Collective(step.kind, self._in_order(step.axes), dtype, local, 1)
                    yield each.info.function, each.info.repeats, sent
        for node, axes, lies in self._reductions():
            own = self.built.op_reductions[node]
            local = self._bytes(own.shape, lies, own.dtype)
            sent = Collective("all_reduce", self._in_order(axes), own.dtype, local, 1)
            yield self.built.node_functions[node], own.repeats, sent

    def _in_order(self, axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.mesh.axes if name in axes)

    def _sum_dtype(self, dtype: str) -> str:
        """The type in which partial sums are sent."""
        sizes = self.model.sent_itemsizes(itemsize(dtype), itemsize(sum_dtype(dtype)))
        return sum_dtype(dtype) if sizes[1] > sizes[0] else dtype

    def buffers(self) -> list[Buffer]:
        """The buffers of reshards and reductions, in addition to the memory of the nodes.

        The result of a reshard is live until its last user is done, unless it is only a slice that
        XLA fuses into the user. The buffers of each step are live while the reshard runs. A value
        that a function returns in another sharding is held twice.
        """
        found: list[Buffer] = []
        for each in self.reshards:
            found += self._buffers_of(each)
        for node, _, lies in self._reductions():
            reduction = self.built.op_reductions[node]
            start = self.built.problem.intervals[node][0]
            num_bytes = self._bytes(reduction.shape, lies, reduction.dtype)
            found.append(Buffer(num_bytes, start, start + 1))
        return found

    def _buffers_of(self, each: PlannedReshard) -> Iterator[Buffer]:
        info, source = each.info, each.source
        op = self.built.node_ops[source][0]
        ways = (each.made, *(step.result for step in each.found.steps))
        sizes = [self._held_bytes(info, lies) for lies in ways]
        spans = [edge.needed for _, edge in each.users if edge.needed is not None]
        lo, hi = self.built.problem.intervals[source]
        at = min((start for start, _ in spans), default=lo)
        heavy = any(user in self.heavy for user, _ in each.users)
        slices = all(step.kind == "all_slice" for step in each.found.steps)
        if slices and not (heavy if spans else op in PRODUCTS):
            return
        if spans:
            yield Buffer(sizes[-1], at, max(end for _, end in spans))
        if not self.built.problem.usages[source][self.choice[source]]:
            # It needs no buffer: the function returns it, or it is fused into its users.
            if op:
                yield Buffer(sizes[0], at, at + 1 if op in ON_THE_FLY else max(hi, at + 1))
            elif source not in self.values and hi > lo + 1:  # a loop carries it
                yield Buffer(sizes[0], lo, hi)
        most = 0
        for number, step in enumerate(each.found.steps, 1):
            needs = sizes[number - 1] if number > 1 else 0
            needs += sizes[number] if number < len(each.found.steps) else 0
            if (
                step.kind == "all_to_all"
            ):  # a separate buffer for each device's piece, sent and received
                needs += sizes[number - 1] + sizes[number]
            most = max(most, needs)
        yield Buffer(most, at, at + 1)

    def _held_bytes(self, info: EdgeReshard, lies: TensorSharding) -> int:
        return self._bytes(
            info.shape, lies, sum_dtype(info.dtype) if lies.unreduced else info.dtype
        )

    def _bytes(self, shape: Sequence[int], lies: TensorSharding, dtype: str) -> int:
        return math.prod(shape) // self.mesh.num_shards(lies.axes) * itemsize(dtype)

    def _reshards(self) -> Iterator[PlannedReshard]:
        users: dict[tuple[str, int, int, TensorSharding], list[tuple[int, EdgeReshard]]] = {}
        lies: dict[tuple[int, int], TensorSharding] = {}
        # A constraint that changes nothing forwards its operand: node -> (node, position).
        same: dict[int, tuple[int, int]] = {}
        edges = self.built.problem.edges[: len(self.built.edge_reshards)]
        for info, (u, v) in zip(self.built.edge_reshards, edges, strict=True):
            source = same.get(u, (u, info.position))
            made, used = info.made[self.choice[u]], info.used[self.choice[v]]
            if used != made:
                lies[source] = made
                users.setdefault((info.function, *source, used), []).append((v, info))
            elif v in self.built.constraints:
                same[v] = source
        for (_, node, position, used), found in users.items():
            info, made = found[0][1], lies[node, position]
            sizes = self.model.sent_itemsizes(itemsize(info.dtype), itemsize(sum_dtype(info.dtype)))
            steps = reshard(made, used, self.mesh, info.shape, sizes[0], self.links, sizes[1])
            yield PlannedReshard(node, made, tuple(found), steps)

    def _reductions(self) -> Iterator[tuple[int, tuple[str, ...], TensorSharding]]:
        """Node and axes of each op that reduces its own result, and the result's sharding."""
        for name, nodes_of_ops in self.built.op_nodes.items():
            options_of_ops = self.built.op_strategies[name]
            for nodes, options in zip(nodes_of_ops, options_of_ops, strict=True):
                for node, strategies in zip(nodes, options, strict=True):
                    chosen = strategies[self.choice[node]]
                    if chosen.reduce_axes:
                        yield node, chosen.reduce_axes, chosen.results[0]


def _totals(found: Iterable[tuple[Collective, int]]) -> tuple[Collective, ...]:
    """Sums over those of one kind, axes and type, each taken as often as it says."""
    total: dict[tuple[str, tuple[str, ...], str], tuple[int, int]] = {}
    for each, times in found:
        key = each.kind, each.axes, each.dtype
        num_bytes, count = total.get(key, (0, 0))
        total[key] = num_bytes + each.num_bytes * times, count + times
    return tuple(Collective(*key, *sums) for key, sums in sorted(total.items()))


def _heavy_nodes(built: StageProblem) -> set[int]:
    """Ops that read their operands from memory, and ops that only forward these operands."""
    heavy = {node for node, (op, _) in enumerate(built.node_ops) if op in PRODUCTS}
    edges = built.problem.edges[: len(built.edge_reshards)]
    return heavy | {u for u, v in edges if v in heavy and u in built.constraints}
