"""What a solved stage costs, split by function: seconds, bytes on the wire, peak memory."""

from shardc.analysis.stage_problem import StageProblem
from shardc.cluster import Cluster
from shardc.cost.links import axis_links
from shardc.cost.reshard import reshard
from shardc.plan import Mesh, StageReport
from shardc.solver.problem import Solution, evaluate


def stage_report(
    built: StageProblem, solution: Solution, mesh: Mesh, cluster: Cluster
) -> StageReport:
    """Splits the solution's cost by kind of function and adds up what it sends."""
    links = axis_links(cluster, mesh)
    problem, choice = built.problem, solution.choice
    seconds: dict[str, float] = {}
    for node, name in enumerate(built.node_functions):
        if name:
            seconds[name] = seconds.get(name, 0.0) + float(problem.costs[node][choice[node]])
    sent = 0.0
    for edge, info in enumerate(built.edge_reshards):
        u, v = problem.edges[edge]
        cost = float(problem.edge_costs[edge][choice[u], choice[v]])
        seconds[info.function] = seconds.get(info.function, 0.0) + cost
        if cost > 0.0:
            found = reshard(
                info.made[choice[u]],
                info.used[choice[v]],
                mesh,
                info.shape,
                info.itemsize,
                links,
                info.sum_itemsize,
            )
            sent += found.num_bytes * info.repeats
    by_kind: dict[str, float] = {}
    for name, total in seconds.items():
        kind = name.split("_")[1]
        by_kind[kind] = by_kind.get(kind, 0.0) + total / built.function_repeats[name]
    return StageReport(
        seconds=by_kind,
        peak_bytes=evaluate(problem, choice).peak_usage,
        communication_bytes=int(sent),
        num_flops=built.num_flops,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        notes=built.replicated,
    )
