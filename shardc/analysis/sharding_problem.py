"""The intra-operator problem of one stage: its ops and values as nodes, reshards as edges.

A node is either an op of one of the stage's functions (strategies: `op_strategies`) or a value
that crosses between functions or comes from the caller: a parameter, an optimizer state, a stashed
activation, an accumulator (strategies: every even sharding). An edge prices the reshard between
where a value is made and where it is used, by the same function that will emit it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.flops import heavy_flops, op_cost
from shardc.analysis.reshard_tables import Column, StrategyColumns, reshard_tables
from shardc.analysis.sharding_rules import OpRule
from shardc.analysis.stage_problem import EdgeReshard, StageProblem
from shardc.analysis.strategies import (
    Strategy,
    barrier_strategies,
    can_be_unreduced,
    op_strategies,
    value_shardings,
)
from shardc.cluster import Cluster
from shardc.cost.collectives import all_reduce_over_s
from shardc.cost.links import axis_links
from shardc.cost.roofline import op_time_s
from shardc.ir.attributes import KIND, PER_MICROBATCH, VALUE, arg_attrs, get_str, result_attrs
from shardc.ir.local_ops import BARRIER
from shardc.ir.tensor_types import (
    dtype_of,
    itemsize,
    num_bytes,
    num_elements,
    shape_of,
    sum_itemsize,
)
from shardc.ir.walk import body, ops, symbol, terminator
from shardc.plan import Mesh
from shardc.solver.problem import Floats, Problem

# Ops that XLA makes on the fly inside their users: they take no time and no memory of their own.
FREE = frozenset(
    f"stablehlo.{name}"
    for name in "constant iota broadcast_in_dim reshape transpose convert slice".split()
)
FUSED_TRAFFIC = 0.5  # an elementwise op is usually fused: it writes, or reads, but not both


@dataclass
class _Node:
    results: tuple[Column, ...]
    costs: list[float]
    usages: list[int]
    interval: tuple[int, int]


class ProblemBuilder:
    """Builds the problem of one stage.

    Args:
        functions: the stage's functions in the order they run.
        rules: function name -> sharding rule of each op.
        mesh: the stage's mesh.
        num_microbatches: how often forward and backward run per step.
        stashes: microbatches whose stashed activations are alive at once.
        same: pairs of value ids that must lie alike (an argument and its next state).
    """

    def __init__(
        self,
        functions: Sequence[ir.Operation],
        rules: dict[str, list[OpRule | None]],
        mesh: Mesh,
        cluster: Cluster,
        num_microbatches: int,
        stashes: int,
        same: dict[str, str],
    ) -> None:
        self.functions = list(functions)
        self.rules = rules
        self.mesh, self.cluster = mesh, cluster
        self.links = axis_links(cluster, mesh)
        self.num_microbatches, self.stashes, self.same = num_microbatches, stashes, same
        self.nodes: list[_Node] = []
        self.edges: list[tuple[int, int]] = []
        self.tables: list[Floats] = []
        self.reshards = reshard_tables(mesh.axes, tuple(self.links.items()))
        self.value_nodes: dict[str, int] = {}
        self.value_options: dict[str, Column] = {}
        self.num_flops = 0
        self.replicated: list[str] = []
        self.node_functions: list[str] = []
        self.edge_reshards: list[EdgeReshard] = []
        self.function = ""

    def build(self, usage_limit: int | None) -> StageProblem:
        """The problem under a limit of bytes per device (None: no limit)."""
        times = self._times()
        args = {symbol(f): self._ids(arg_attrs(f)) for f in self.functions}
        results = {symbol(f): self._ids(result_attrs(f)) for f in self.functions}
        self._add_values(times)
        op_nodes: dict[str, list[tuple[int, ...]]] = {}
        chosen: dict[str, list[tuple[tuple[Strategy, ...], ...]]] = {}
        for function in self.functions:
            name = symbol(function)
            op_nodes[name], chosen[name] = self._add_function(function, times[name], args[name])
        for value, other in self.same.items():
            if value in self.value_nodes and other in self.value_nodes:
                self._tie(value, other)
        problem = Problem(
            costs=[np.array(node.costs) for node in self.nodes],
            edges=self.edges,
            edge_costs=self.tables,
            usages=[np.array(node.usages, np.int64) for node in self.nodes],
            intervals=[node.interval for node in self.nodes],
            usage_limit=usage_limit,
        )
        return StageProblem(
            problem,
            op_nodes,
            chosen,
            self.value_nodes,
            self.value_options,
            {name: tuple(ids) for name, ids in results.items()},
            {name: tuple(ids) for name, ids in args.items()},
            self.num_flops,
            tuple(dict.fromkeys(self.replicated)),
            self.node_functions,
            self.edge_reshards,
        )

    @staticmethod
    def _ids(attrs: list[dict[str, ir.Attribute]]) -> list[str]:
        return [str(ir.StringAttr(each[VALUE]).value) for each in attrs]

    def _times(self) -> dict[str, int]:
        """Start time of each function on one axis of time over all ops of the stage."""
        start, found = 0, {}
        for function in self.functions:
            found[symbol(function)] = start
            start += len(ops(function)) + 2
        self.end = start
        return found

    def _repeats(self, function: ir.Operation) -> int:
        inside = get_str(function, KIND) in ("forward", "backward")
        return self.num_microbatches if inside else 1

    def _add_values(self, times: dict[str, int]) -> None:
        """A node for each value id, live from where it is made to where it is last used."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        sample: dict[str, tuple[ir.Value, bool]] = {}
        for function in self.functions:
            start = times[symbol(function)]
            stop = start + len(ops(function)) + 2
            for attrs, argument in zip(arg_attrs(function), body(function).arguments, strict=True):
                name = str(ir.StringAttr(attrs[VALUE]).value)
                sample.setdefault(name, (argument, PER_MICROBATCH in attrs))
                first.setdefault(name, 0 if not name.startswith("v") else start)
                last[name] = self.end if name.startswith("arg") else stop
            for attrs, value in zip(
                result_attrs(function), terminator(function).operands, strict=True
            ):
                name = str(ir.StringAttr(attrs[VALUE]).value)
                sample.setdefault(name, (value, PER_MICROBATCH in attrs))
                first.setdefault(name, 0 if name.startswith("acc") else stop - 1)
                last[name] = max(last.get(name, 0), stop)
        in_place = set(self.same)
        read = self._read_after_the_microbatches()
        for name, (value, many) in sample.items():
            shape, bytes_each = shape_of(value), num_bytes(value)
            sizes = itemsize(dtype_of(value)), sum_itemsize(value)
            sums = name.startswith("acc")
            options = self.reshards.intern(value_shardings(shape, self.mesh.axes, sums))
            copies = self.stashes if many else 1
            shards = [self.mesh.num_shards(option.axes) for option in options]
            free = name in in_place
            node = _Node(
                (options,),
                [
                    0.0 if name in read else self.reshards.finish_s(o, options, shape, sizes)
                    for o in options
                ],
                [0 if free else copies * bytes_each // n for n in shards],
                (first[name], last[name]),
            )
            self.value_nodes[name] = self._add(node)
            self.value_options[name] = options

    def _read_after_the_microbatches(self) -> set[str]:
        """Values that an update reads, so that its reshards price what is left to be reduced."""
        return {
            name
            for function in self.functions
            if get_str(function, KIND) == "update"
            for name in self._ids(arg_attrs(function))
        }

    def _add(self, node: _Node) -> int:
        self.nodes.append(node)
        self.node_functions.append(self.function)
        return len(self.nodes) - 1

    def _add_function(
        self, function: ir.Operation, start: int, arg_ids: list[str]
    ) -> tuple[list[tuple[int, ...]], list[tuple[tuple[Strategy, ...], ...]]]:
        repeats = self._repeats(function)
        self.function = symbol(function)
        source: dict[ir.Value, tuple[int, int]] = {}  # value -> node, position among its results
        unreduced: dict[ir.Value, bool] = {}
        for value, name in zip(body(function).arguments, arg_ids, strict=True):
            source[value] = (self.value_nodes[name], 0)
            unreduced[value] = name.startswith("acc")
        all_ops = ops(function)
        last_use = _last_uses(all_ops)
        crossing = set(terminator(function).operands)
        nodes, chosen = [], []
        rules = self.rules[symbol(function)]
        for time, (op, rule) in enumerate(zip(all_ops, rules, strict=True)):
            flags = tuple(unreduced.get(operand, False) for operand in op.operands)
            if op.name == BARRIER:
                parts, options = self._add_barrier(op, flags, start + time, source, repeats)
                nodes.append(parts)
                chosen.append(options)
                unreduced.update(zip(op.results, flags, strict=True))
                continue
            strategies = op_strategies(op, rule, self.mesh, flags)
            self._note(op, rule, strategies)
            keep = op.name not in FREE and not crossing.intersection(op.results)
            live = max((last_use.get(result, time) for result in op.results), default=time)
            columns = self.reshards.columns(strategies)
            num_result_bytes = _result_bytes(op, columns)
            node = _Node(
                columns.results,
                self._op_costs(op, strategies, num_result_bytes, repeats),
                num_result_bytes if keep else [0] * len(strategies),
                (start + time, start + live + 1),
            )
            index = self._add(node)
            nodes.append((index,))
            chosen.append((strategies,))
            for position, operand in enumerate(op.operands):
                target = (index, columns.operands[position])
                self._connect(source[operand], target, operand, repeats)
            linear = can_be_unreduced(op, rule, flags)
            for position, result in enumerate(op.results):
                source[result] = (index, position)
                unreduced[result] = linear
        for operand, attrs in zip(
            terminator(function).operands, result_attrs(function), strict=True
        ):
            name = str(ir.StringAttr(attrs[VALUE]).value)
            self._connect(
                source[operand],
                (self.value_nodes[name], self.value_options[name]),
                operand,
                repeats,
            )
        return nodes, chosen

    def _add_barrier(
        self,
        op: ir.Operation,
        flags: tuple[bool, ...],
        time: int,
        source: dict[ir.Value, tuple[int, int]],
        repeats: int,
    ) -> tuple[tuple[int, ...], tuple[tuple[Strategy, ...], ...]]:
        """A node for each operand of a barrier: what becomes of one says nothing of the others."""
        nodes, chosen = [], []
        for operand, result, flag in zip(op.operands, op.results, flags, strict=True):
            strategies = barrier_strategies(operand, self.mesh, flag)
            columns = self.reshards.columns(strategies)
            nothing = [0] * len(strategies)
            index = self._add(
                _Node(columns.results, [0.0] * len(strategies), nothing, (time, time + 1))
            )
            self._connect(source[operand], (index, columns.operands[0]), operand, repeats)
            source[result] = (index, 0)
            nodes.append(index)
            chosen.append(strategies)
        return tuple(nodes), tuple(chosen)

    def _note(
        self, op: ir.Operation, rule: OpRule | None, strategies: tuple[Strategy, ...]
    ) -> None:
        target = get_str(op, "call_target_name")
        if rule is None and op.name not in ("stablehlo.constant", "stablehlo.iota"):
            self.replicated.append(f"{op.name} @{target}" if target else op.name)

    def _op_costs(
        self,
        op: ir.Operation,
        strategies: tuple[Strategy, ...],
        num_result_bytes: list[int],
        repeats: int,
    ) -> list[float]:
        cost = op_cost(op)
        dtype = dtype_of(op.operands[0]) if len(op.operands) else dtype_of(op.results[0])
        heavy = heavy_flops(op) > 0
        self.num_flops += cost.flops * repeats
        traffic = (cost.bytes_read + cost.bytes_written) * (1.0 if heavy else FUSED_TRAFFIC)
        if op.name in FREE:
            traffic = 0.0
        split_s = {
            n: op_time_s(cost.flops / n, traffic / n, dtype, self.cluster.device)
            for n in {s.num_shards for s in strategies}
        }
        found = []
        for s, bytes_each in zip(strategies, num_result_bytes, strict=True):
            seconds = split_s[s.num_shards]
            if s.reduce_axes:
                pairs = [(self.mesh.size(a), self.links[a]) for a in s.reduce_axes]
                seconds += all_reduce_over_s(pairs, bytes_each)
            found.append(seconds * repeats)
        return found

    def _connect(
        self,
        source: tuple[int, int],
        target: tuple[int, Column],
        value: ir.Value,
        repeats: int,
    ) -> None:
        """An edge that prices the reshard of `value` for every pair of strategies."""
        node, position = source
        made, used = self.nodes[node].results[position], target[1]
        shape, sizes = shape_of(value), (itemsize(dtype_of(value)), sum_itemsize(value))
        self.edges.append((node, target[0]))
        self.tables.append(self.reshards.seconds(made, used, shape, sizes, repeats))
        self.edge_reshards.append(EdgeReshard(self.function, shape, *sizes, made, used, repeats))

    def _tie(self, value: str, other: str) -> None:
        """Forbids that two values of equal shape lie differently."""
        self.edges.append((self.value_nodes[value], self.value_nodes[other]))
        self.tables.append(self.reshards.tie(self.value_options[value], self.value_options[other]))


def _last_uses(all_ops: Sequence[ir.Operation]) -> dict[ir.Value, int]:
    """When each value is needed last; what a free op makes of a value needs that value still."""
    found: dict[ir.Value, int] = {}
    for time, op in reversed(list(enumerate(all_ops))):
        until = time
        if op.name in FREE or op.name == BARRIER:
            until = max((found.get(result, time) for result in op.results), default=time)
        for operand in op.operands:
            found[operand] = max(found.get(operand, 0), until)
    return found


def _result_bytes(op: ir.Operation, columns: StrategyColumns) -> list[int]:
    """Bytes of all results on one device, under each strategy."""
    totals = [0] * len(columns.strategies)
    for result, made, shards in zip(op.results, columns.results, columns.shards, strict=True):
        whole = num_bytes(result)
        partial = num_elements(result) * sum_itemsize(result)
        totals = [
            total + (partial if lies.unreduced else whole) // n
            for total, lies, n in zip(totals, made, shards, strict=True)
        ]
    return totals
