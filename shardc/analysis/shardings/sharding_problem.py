"""The intra-operator problem of one stage: its ops and values as nodes, reshards as edges.

A node is either an op of one of the stage's functions (strategies: `strategies.py`) or a value
that functions pass to each other or that comes from the caller: a parameter, an optimizer state, a
stashed activation, an accumulator (strategies: every even sharding). An edge prices the reshard
between a definition and a use, with the same function that emits it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import NamedUserSharding
from shardc.analysis.shardings.function_nodes import FunctionNodes
from shardc.analysis.shardings.problem_graph import (
    FunctionFacts,
    Node,
    ProblemGraph,
)
from shardc.analysis.shardings.reshard_tables import Column
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.analysis.shardings.strategies import value_shardings
from shardc.cluster import Cluster
from shardc.cost.arrivals import Arrival
from shardc.cost.model import CostModel
from shardc.ir.attributes import (
    ASKED,
    GATHERED,
    PER_MICROBATCH,
    VALUE,
    arg_attrs,
    function_kind,
    get_str,
    result_attrs,
)
from shardc.ir.tensor_types import dtype_of, itemsize, num_bytes, shape_of, sum_itemsize
from shardc.ir.user_shardings import read_user_sharding
from shardc.ir.walk import body, planned_ops, symbol, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_accumulator, is_argument, is_computed
from shardc.solver.interrupt import poll

STEPS_PER_ARRIVAL = 100  # state is transferred once, and then stays in place for many steps


class ProblemBuilder:
    """Builds the problem of one stage.

    Args:
        functions: the stage's functions in the order they run.
        facts: function name -> facts about its ops.
        mesh: the stage's mesh.
        num_microbatches: runs of forward and backward per step.
        stashes: number of microbatches with live stashes at once.
        same: pairs of value ids that must have the same sharding (an argument and its next state).
        donated: value ids of the arguments that their next state replaces in place.
        asked: value id -> the user sharding.
        ignored: names of user shardings, and positions of constraints, to ignore.
        arrivals: value id -> where the argument is when the step is called. Its transfer is
            priced; for state, once in `STEPS_PER_ARRIVAL` steps.
        late_sums: axes over which accumulators stay partial sums.
    """

    def __init__(
        self,
        functions: Sequence[ir.Operation],
        facts: Mapping[str, FunctionFacts],
        mesh: Mesh,
        cluster: Cluster,
        num_microbatches: int,
        stashes: int,
        same: dict[str, str],
        donated: frozenset[str],
        asked: Mapping[str, NamedUserSharding] = MappingProxyType({}),
        ignored: frozenset[str] = frozenset(),
        arrivals: Mapping[str, Arrival] = MappingProxyType({}),
        late_sums: Sequence[str] = (),
    ) -> None:
        self.functions = list(functions)
        self.facts = facts
        self.mesh, self.model = mesh, CostModel(cluster).on(mesh)
        self.num_microbatches, self.stashes = num_microbatches, stashes
        self.ignored, self.arrivals, self.late_sums = ignored, arrivals, late_sums
        self.arrival_costs: dict[str, list[float]] = {}
        self.asked = {v: each.asked for v, each in asked.items() if each.name not in ignored}
        for function in functions:
            for attrs in arg_attrs(function):
                if ASKED in attrs:
                    self.asked[str(ir.StringAttr(attrs[VALUE]).value)] = read_user_sharding(
                        attrs[ASKED]
                    )
        self.state = frozenset(same.values())
        self.in_place = {value for value, argument in same.items() if argument in donated}
        # An argument and its next state may differ if the user shards both.
        self.same = {
            value: argument
            for value, argument in same.items()
            if (one := self.asked.get(value)) is None
            or (other := self.asked.get(argument)) is None
            or one == other
        }
        for value, argument in self.same.items():
            for a, b in ((value, argument), (argument, value)):
                if a in self.asked:
                    self.asked[b] = self.asked[a]
        self.graph = ProblemGraph(mesh, self.model)
        self.value_nodes: dict[str, int] = {}
        self.value_options: dict[str, Column] = {}
        self.copied: set[int] = set()

    def build(self, usage_limit: int | None) -> StageProblem:
        """The problem under a limit of bytes per device (None: no limit)."""
        times = self._times()
        args = {symbol(f): function_args(f) for f in self.functions}
        results = {symbol(f): function_results(f) for f in self.functions}
        self._add_values(times)
        added = {}
        for f in self.functions:
            poll()
            name = symbol(f)
            added[name] = self._add_function(f, times[name], args[name], results[name])
        for each in added.values():
            for node, place in each.in_place:
                self.graph.tie(node, place)
        for value, other in self.same.items():
            if value in self.value_nodes and other in self.value_nodes:
                self.graph.tie(self.value_nodes[value], self.value_nodes[other])
        return StageProblem(
            self.graph.problem(usage_limit),
            {name: each.nodes for name, each in added.items()},
            {name: each.options for name, each in added.items()},
            self.value_nodes,
            self.value_options,
            results,
            args,
            {symbol(f): self._repeats(f) for f in self.functions},
            {symbol(f): function_kind(f) or FunctionKind.UPDATE for f in self.functions},
            sum(each.num_flops for each in added.values()),
            frozenset(node for each in added.values() for node in each.constraints),
            frozenset(node for each in added.values() for node in each.ruleless),
            self.graph.node_functions,
            [(node.works, node.repeats) for node in self.graph.nodes],
            [(node.op, node.num_flops) for node in self.graph.nodes],
            self.graph.edge_reshards,
            self.graph.op_reductions,
            self.state,
            self.arrival_costs,
            frozenset(self.copied),
            self.stashes,
        )

    def _add_function(
        self,
        function: ir.Operation,
        start: int,
        args: Sequence[str],
        results: Sequence[str],
    ) -> FunctionNodes:
        name = self.graph.function = symbol(function)
        nodes = FunctionNodes(
            self.graph,
            self.model,
            self.facts[name],
            start,
            self._repeats(function),
            self.ignored,
        )
        nodes.run(
            [(self.value_nodes[value], is_accumulator(value)) for value in args],
            [self.value_nodes[value] for value in results],
        )
        return nodes

    def _times(self) -> dict[str, int]:
        """Start time of each function on a common timeline of all ops of the stage."""
        start, found = 0, {}
        for function in self.functions:
            found[symbol(function)] = start
            start += len(planned_ops(function)) + 2
        self.end = start
        return found

    def _repeats(self, function: ir.Operation) -> int:
        kind = function_kind(function)
        return self.num_microbatches if kind is not None and kind.per_microbatch else 1

    def _add_values(self, times: dict[str, int]) -> None:
        """A node for each value id, live from the function that computes it to its last user.

        A function's results are live from its start: XLA allocates them before it runs.
        """
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        sample: dict[str, tuple[ir.Value, bool]] = {}
        for function in self.functions:
            start = times[symbol(function)]
            stop = start + len(planned_ops(function)) + 2
            for attrs, argument in zip(arg_attrs(function), body(function).arguments, strict=True):
                name = str(ir.StringAttr(attrs[VALUE]).value)
                sample.setdefault(name, (argument, PER_MICROBATCH in attrs))
                first.setdefault(name, 0 if not is_computed(name) else start)
                last[name] = self.end if is_argument(name) else stop
            for attrs, value in zip(
                result_attrs(function), terminator(function).operands, strict=True
            ):
                name = str(ir.StringAttr(attrs[VALUE]).value)
                sample.setdefault(name, (value, PER_MICROBATCH in attrs))
                first.setdefault(name, 0 if is_accumulator(name) else start)
                last[name] = max(last.get(name, 0), stop)
        read, moved = self._read_after_the_microbatches(), _moved(self.functions)
        finish_s = self.graph.reshards.finish_s
        for name, (value, many) in sample.items():
            shape, bytes_each = shape_of(value), num_bytes(value)
            sizes = self.model.sent_itemsizes(itemsize(dtype_of(value)), sum_itemsize(value))
            sums = is_accumulator(name)
            options = value_shardings(shape, self.mesh.axes, sums)
            if name in self.asked:
                options = self.asked[name].only(options)
            if name in moved:
                options = tuple(filter(moved[name], options)) or options
            elif sums and self.late_sums:
                late = {axis for axis, _ in self.mesh.axes if axis in self.late_sums}
                options = tuple(o for o in options if late <= set(o.unreduced)) or options
            options = self.graph.reshards.intern(options)
            copies = self.stashes if many else 1
            shards = [self.mesh.num_shards(option.axes) for option in options]
            free = name in self.in_place
            arriving = self._arrival_costs(name, options, shape, sizes[0])
            node = Node(
                (options,),
                [
                    at + (0.0 if name in read else finish_s(o, options, shape, sizes))
                    for o, at in zip(options, arriving, strict=True)
                ],
                [0 if free else copies * (bytes_each // n) for n in shards],
                (first[name], last[name]),
            )
            self.value_nodes[name] = self.graph.add(node)
            if many:
                self.copied.add(self.value_nodes[name])
            self.value_options[name] = options

    def _arrival_costs(
        self, name: str, options: Column, shape: tuple[int, ...], bytes_each: int
    ) -> list[float]:
        """Seconds per step to transfer a value to each of `options`."""
        arrival = self.arrivals.get(name)
        if arrival is None or arrival.shape != shape:  # none, or only rows of a stack
            return [0.0] * len(options)
        steps = STEPS_PER_ARRIVAL if name in self.state else 1
        found = [
            self.model.arrival_s(arrival, self.mesh, option, bytes_each) / steps
            for option in options
        ]
        self.arrival_costs[name] = found
        return found

    def _read_after_the_microbatches(self) -> set[str]:
        """Values that a reduction or an update reads: its reshards price what is left to reduce."""
        return {
            name
            for function in self.functions
            if function_kind(function) in (FunctionKind.REDUCE, FunctionKind.UPDATE)
            for name in function_args(function)
        }


def _moved(functions: Sequence[ir.Operation]) -> dict[str, Callable[[TensorSharding], bool]]:
    """Of each value that a function gathers or reduces, and of what it makes: whether a sharding
    suits it. What is gathered, or reduced, is split over the axis; parameters for the microbatches
    are not, and their gradients are partial sums over it."""
    found: dict[str, Callable[[TensorSharding], bool]] = {}
    for function in functions:
        axis = get_str(function, GATHERED)
        if axis is None:
            continue
        takes, gives = function_args(function), function_results(function)
        split, whole, partial = _suits(axis)
        gathers = function_kind(function) is FunctionKind.GATHER
        found |= dict.fromkeys(takes, split if gathers else partial)
        found |= dict.fromkeys(gives, whole if gathers else split)
    return found


def _suits(axis: str) -> tuple[Callable[[TensorSharding], bool], ...]:
    """Whether a sharding is split over an axis, is whole over it, is a partial sum over it."""
    return (
        lambda lies: axis in lies.axes and not lies.unreduced,
        lambda lies: axis not in lies.axes,
        lambda lies: axis in lies.unreduced,
    )


def function_args(function: ir.Operation) -> tuple[str, ...]:
    """Value id of each argument."""
    return tuple(str(ir.StringAttr(each[VALUE]).value) for each in arg_attrs(function))


def function_results(function: ir.Operation) -> tuple[str, ...]:
    """Value id of each result."""
    return tuple(str(ir.StringAttr(each[VALUE]).value) for each in result_attrs(function))
