"""Small JAX functions as the stage functions that the sharding planner sees."""

from collections import Counter

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import donated_arguments, next_states
from shardc.analysis.shardings.problem_graph import FunctionFacts, function_facts
from shardc.analysis.shardings.sharding_problem import ProblemBuilder
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cluster import Cluster, Device, Level
from shardc.ir.attributes import KIND, get_str
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.shardings import RESHARDING_OPS
from shardc.ir.walk import functions, nested_ops, symbol
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.insert_reshards import InsertReshards
from shardc.passes.lower_collectives import LowerCollectives
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_stages import PlanStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.layout import Mesh
from shardc.rewrite.local.planned_shardings import write_shardings
from shardc.solver.problem.problem import Solution


def cluster(
    *,
    flops_per_s: float,
    bandwidth_bytes_per_s: float = 1e9,
    latency_s: float = 0.0,
    num_devices: int = 4,
) -> Cluster:
    """Devices whose own memory is so fast that only arithmetic and links take time."""
    device = Device("test", 1 << 40, {"default": flops_per_s}, 1e30)
    return Cluster("test", device, (Level("link", num_devices, bandwidth_bytes_per_s, latency_s),))


def outlined(function, *args, donate=(), microbatches=1, batch=()) -> ir.Module:
    """The stage functions of `function` on one stage."""
    text = jax.jit(function, donate_argnums=donate).lower(*args).as_text()
    module = parse(text)
    split = SplitMicrobatches(microbatches, batch)
    run_passes(module, [*NORMALIZE, split, PlanStages(), OutlineStages(), ShareReshards()])
    return module


def problem(
    module: ir.Module,
    mesh: Mesh,
    machine: Cluster,
    *,
    microbatches: int = 1,
    usage_limit: int | None = None,
    facts: dict[str, FunctionFacts] | None = None,
) -> StageProblem:
    """The sharding problem of the only stage of `module`; `facts` are those of its functions."""
    with module.context:
        return ProblemBuilder(
            list(functions(module.operation)),
            facts or function_facts(module.operation),
            mesh,
            machine,
            microbatches,
            microbatches,
            next_states(module.operation),
            donated_arguments(module.operation),
        ).build(usage_limit)


def random_choice(built: StageProblem, rng: np.random.Generator) -> list[int]:
    """One strategy per node."""
    return [int(rng.integers(len(costs))) for costs in built.problem.costs]


def communication_s(built: StageProblem, solution: Solution) -> float:
    """What the reshards of a solution take."""
    tables = zip(built.problem.edges, built.problem.edge_costs, strict=True)
    choice = solution.choice
    return float(sum(table[choice[u], choice[v]] for (u, v), table in tables))


def collectives(
    module: ir.Module, built: StageProblem, solution: Solution, mesh: Mesh, machine: Cluster
) -> dict[str, Counter[str]]:
    """Kind of function -> how many collectives of each kind the lowering emits; slices are none."""
    chosen = built.shardings(solution.choice)
    run_passes(module, [AssignMeshes((mesh,))])
    with module.context:
        for function in functions(module.operation):
            write_shardings(function, chosen[symbol(function)])
    run_passes(module, [InsertReshards(), LowerCollectives(machine)])
    with module.context:
        return {
            str(get_str(function, KIND)): Counter(
                op.name.removeprefix("sdy.")
                for op in nested_ops(function)
                if op.name in RESHARDING_OPS and op.name != "sdy.all_slice"
            )
            for function in functions(module.operation)
        }
