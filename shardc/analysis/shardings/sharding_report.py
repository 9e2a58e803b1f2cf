"""What a solved stage costs, split by function: seconds, bytes on the wire, peak memory."""

from collections.abc import Sequence

from shardc.analysis.shardings.memory_report import memory_at_peak
from shardc.analysis.shardings.planned_reshards import PlannedReshards
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cluster import Cluster
from shardc.cost.links import axis_links
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Replicated, StageReport
from shardc.solver.problem.problem import Solution


def stage_report(
    built: StageProblem, solution: Solution, mesh: Mesh, cluster: Cluster
) -> StageReport:
    """Splits the solution's cost by kind of function and adds up what it sends."""
    problem, choice = built.problem, solution.choice
    seconds: dict[str, float] = {}
    returned_s = 0.0  # of adding up what is returned as partial sums
    for node, name in enumerate(built.node_functions):
        cost = float(problem.costs[node][choice[node]])
        if name:
            seconds[name] = seconds.get(name, 0.0) + cost
        else:
            returned_s += cost
    found = planned_reshards(built, choice, mesh, cluster)
    for edge, info in enumerate(built.edge_reshards):
        u, v = problem.edges[edge]
        cost = float(problem.edge_costs[edge][choice[u], choice[v]])
        seconds[info.function] = seconds.get(info.function, 0.0) + cost
    for value, costs in built.arrival_costs.items():
        first = next(name for name, args in built.function_args.items() if value in args)
        cost = costs[choice[built.value_nodes[value]]]
        seconds[first] = seconds.get(first, 0.0) + cost
    memory = memory_at_peak(built, choice, found.buffers())
    by_kind: dict[str, float] = {}
    for name, total in seconds.items():
        kind = name.split("_")[1]
        by_kind[kind] = by_kind.get(kind, 0.0) + total / built.function_repeats[name]
    if returned_s:
        by_kind["update"] = by_kind.get("update", 0.0) + returned_s
    return StageReport(
        seconds=by_kind,
        peak_bytes=memory.total,
        communication_bytes=int(found.sent_bytes()),
        num_flops=built.num_flops,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        replicated=_replicated(built, choice),
        ideal_s=_ideal_s(built) / len(mesh.device_ids),
        memory=memory,
        collectives=found.collectives(),
        num_folded=solution.num_folded,
        folded_objective=solution.folded_objective,
    )


def planned_reshards(
    built: StageProblem, choice: Sequence[int], mesh: Mesh, cluster: Cluster
) -> PlannedReshards:
    """The reshards that a choice means, on the links of a cluster."""
    return PlannedReshards(built, choice, mesh, axis_links(cluster, mesh))


def _ideal_s(built: StageProblem) -> float:
    """Seconds per step of all ops on one device, as if nothing hindered their even split."""
    total = 0.0
    for name, nodes_of_ops in built.op_nodes.items():
        for nodes, options in zip(nodes_of_ops, built.op_strategies[name], strict=True):
            for node, strategies in zip(nodes, options, strict=True):
                costs = built.problem.costs[node].tolist()
                total += min(c * s.num_shards for c, s in zip(costs, strategies, strict=True))
    return total


def _replicated(built: StageProblem, choice: tuple[int, ...]) -> tuple[Replicated, ...]:
    """What runs whole on every device, the costliest first; ops on single numbers are left out."""
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
