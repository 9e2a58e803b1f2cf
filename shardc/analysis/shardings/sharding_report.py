"""The cost of a solved stage by function: seconds, bytes on the wire, peak memory."""

from collections import Counter
from collections.abc import Sequence

from shardc.analysis.shardings.memory_report import peak_of
from shardc.analysis.shardings.planned_reshards import PlannedReshards
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked, Replicated, StageReport
from shardc.plan.priced_work import Work
from shardc.solver.problem.problem import Solution


def stage_report(
    built: StageProblem, solution: Solution, mesh: Mesh, cluster: Cluster
) -> StageReport:
    """Splits the solution's cost by kind of function and adds up what it sends."""
    problem, choice = built.problem, solution.choice
    seconds: dict[str, float] = {}
    arriving = {built.value_nodes[v]: costs for v, costs in built.arrival_costs.items()}
    returned_s = arrived_s = 0.0  # of adding up what is returned as partial sums; of arguments
    for node, name in enumerate(built.node_functions):
        cost = float(problem.costs[node][choice[node]])
        if name:
            seconds[name] = seconds.get(name, 0.0) + cost
        elif node in arriving:
            arrived_s += arriving[node][choice[node]]
            returned_s += cost - arriving[node][choice[node]]
        else:
            returned_s += cost
    found = planned_reshards(built, choice, mesh, cluster)
    model = CostModel(cluster).on(mesh)
    communication_s = returned_s + arrived_s + _reduced_s(built, choice, model)
    for edge, info in enumerate(built.edge_reshards):
        u, v = problem.edges[edge]
        cost = float(problem.edge_costs[edge][choice[u], choice[v]])
        seconds[info.function] = seconds.get(info.function, 0.0) + cost
        communication_s += cost
    for value, costs in built.arrival_costs.items():
        first = next(name for name, args in built.function_args.items() if value in args)
        cost = costs[choice[built.value_nodes[value]]]
        seconds[first] = seconds.get(first, 0.0) + cost
    peak = peak_of(built, choice, found.buffers())
    memory = peak.memory
    calls: dict[FunctionKind, list[float]] = {}  # in the order of the functions: slice by slice
    for name, kind in built.function_kinds.items():
        if name in seconds:
            calls.setdefault(kind, []).append(seconds[name] / built.function_repeats[name])
    by_kind = {kind: sum(each) for kind, each in calls.items()}
    slices = {
        kind: tuple(each / by_kind[kind] for each in own)
        for kind, own in calls.items()
        if kind.per_microbatch and len(own) > 1 and by_kind[kind]
    }
    if returned_s:
        update = FunctionKind.UPDATE
        by_kind[update] = by_kind.get(update, 0.0) + returned_s
    asked = _asked(built, choice, found)
    by_kind = {
        kind: total + model.host_s(asked.get(kind, ()), mesh) for kind, total in by_kind.items()
    }
    return StageReport(
        seconds=by_kind,
        peak_bytes=memory.total,
        communication_bytes=int(found.sent_bytes()),
        num_flops=built.num_flops,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        replicated=_replicated(built, choice) if len(mesh.device_ids) > 1 else (),
        ideal_s=_ideal_s(built) / len(mesh.device_ids),
        memory=memory,
        peak_at=peak.place,
        held=peak.held,
        collectives=found.collectives(),
        num_folded=solution.num_folded,
        folded_objective=solution.folded_objective,
        communication_s=communication_s,
        asked=asked,
        slices=slices,
    )


def _asked(
    built: StageProblem, choice: Sequence[int], found: PlannedReshards
) -> dict[FunctionKind, tuple[Asked, ...]]:
    """The work of a call of each kind of function on a device, by how often it is done."""
    work: dict[str, dict[int, Counter[Work]]] = {name: {} for name in built.function_repeats}
    for node, name in enumerate(built.node_functions):
        works, repeats = built.node_works[node]
        if name and works:
            work[name].setdefault(repeats, Counter())[works[choice[node]]] += 1
    asked: dict[FunctionKind, tuple[Asked, ...]] = {}
    for name, calls in built.function_repeats.items():
        sent = found.collectives_of(name)
        own = (
            Asked(
                tuple(
                    (each, float(count))
                    for each, count in sorted(work[name].get(repeats, Counter()).items())
                    if each.flops or each.num_bytes
                ),
                sent.get(repeats, ()),
                repeats / calls,
            )
            for repeats in sorted(work[name].keys() | sent.keys())
        )
        kind = built.function_kinds[name]
        asked[kind] = (*asked.get(kind, ()), *own)
    return asked


def planned_reshards(
    built: StageProblem, choice: Sequence[int], mesh: Mesh, cluster: Cluster
) -> PlannedReshards:
    """The reshards of a choice, on the links of a cluster."""
    return PlannedReshards(built, choice, mesh, CostModel(cluster).on(mesh))


def _ideal_s(built: StageProblem) -> float:
    """Seconds per step of all ops on one device if all work were split evenly."""
    total = 0.0
    for name, nodes_of_ops in built.op_nodes.items():
        for nodes, options in zip(nodes_of_ops, built.op_strategies[name], strict=True):
            for node, strategies in zip(nodes, options, strict=True):
                costs = built.problem.costs[node].tolist()
                total += min(c * s.num_shards for c, s in zip(costs, strategies, strict=True))
    return total


def computed_s(built: StageProblem, node: int, strategy: int, model: CostModel) -> float:
    """Seconds per step of an op, without the all-reduce of its own result."""
    works, repeats = built.node_works[node]
    if not works:
        return float(built.problem.costs[node][strategy])
    return model.op_s(works[strategy]) * repeats


def _reduced_s(built: StageProblem, choice: Sequence[int], model: CostModel) -> float:
    """Seconds per step of all-reduces by ops of their own results."""
    total = 0.0
    for name, nodes_of_ops in built.op_nodes.items():
        for nodes, options in zip(nodes_of_ops, built.op_strategies[name], strict=True):
            for node, strategies in zip(nodes, options, strict=True):
                own = choice[node]
                if strategies[own].reduce_axes:
                    cost = float(built.problem.costs[node][own])
                    total += cost - computed_s(built, node, own, model)
    return total


def _replicated(built: StageProblem, choice: tuple[int, ...]) -> tuple[Replicated, ...]:
    """The replicated ops, most expensive first, except ops on single elements."""
    found: dict[tuple[str, str], Replicated] = {}
    for name, nodes_of_ops in built.op_nodes.items():
        for nodes, options in zip(nodes_of_ops, built.op_strategies[name], strict=True):
            for node, strategies in zip(nodes, options, strict=True):
                op, num_flops = built.node_ops[node]
                seconds = float(built.problem.costs[node][choice[node]])
                if not op or strategies[choice[node]].num_shards > 1:
                    continue
                if node in built.ruleless:
                    why = "rule"
                elif all(strategy.num_shards == 1 for strategy in strategies):
                    why = "strategy"
                else:
                    why = "choice"
                if why != "rule" and not seconds and not num_flops:
                    continue
                known = found.get((op, why), Replicated(op, why, 0, 0.0, 0))
                found[op, why] = Replicated(
                    op,
                    why,
                    known.num_ops + 1,
                    known.seconds + seconds,
                    known.num_flops + num_flops,
                )
    return tuple(sorted(found.values(), key=lambda each: (-each.seconds, each.op, each.why)))
