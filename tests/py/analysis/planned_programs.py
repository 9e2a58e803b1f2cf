"""Small JAX functions as the stage functions that the sharding planner sees."""

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.sharding_problem import ProblemBuilder
from shardc.analysis.sharding_rules import rules_of
from shardc.analysis.stage_problem import StageProblem
from shardc.analysis.stage_table import next_states
from shardc.cluster import Cluster, Device, Level
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import functions
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_stages import PlanStages
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan import Mesh


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
    run_passes(module, [*NORMALIZE, split, PlanStages(), OutlineStages()])
    return module


def problem(
    module: ir.Module,
    mesh: Mesh,
    machine: Cluster,
    *,
    microbatches: int = 1,
    usage_limit: int | None = None,
) -> StageProblem:
    """The sharding problem of the only stage of `module`."""
    with module.context:
        return ProblemBuilder(
            list(functions(module.operation)),
            rules_of(module.operation),
            mesh,
            machine,
            microbatches,
            microbatches,
            next_states(module.operation),
        ).build(usage_limit)


def random_choice(built: StageProblem, rng: np.random.Generator) -> list[int]:
    """One strategy per node."""
    return [int(rng.integers(len(costs))) for costs in built.problem.costs]
