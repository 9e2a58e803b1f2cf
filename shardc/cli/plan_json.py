"""A plan as the JSON of the commands."""

from typing import Any

import msgspec

from shardc.errors import InputError
from shardc.importer.program import Imported
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan


def requested(options: PlanOptions) -> dict[str, Any]:
    """The request, as JSON; the plan may have less (`notes` say why)."""
    return {"requested": {"stages": options.stages, "microbatches": options.microbatches}}


def plan_summary(plan: Plan, options: PlanOptions) -> dict[str, Any]:
    """The JSON of `shardc plan`; numbers in seconds, bytes and floating-point operations."""
    return {
        **requested(options),
        "num_stages": plan.num_stages,
        "num_microbatches": plan.num_microbatches,
        "num_ops": sum(len(function.ops) for function in plan.shardings.values()),
        "schedule": plan.schedule,
        "num_chunks": plan.num_chunks,
        "num_slices": plan.num_slices,
        "schedules": msgspec.to_builtins(plan.schedules),
        "predicted_step_time_s": plan.predicted.step_time_s,
        "predicted_peak_bytes_per_device": plan.predicted.peak_bytes_per_device,
        "communication_bytes_per_step": plan.predicted.communication_bytes,
        "compute_s": plan.predicted.compute_s,
        "bubble_fraction": plan.predicted.bubble_fraction,
        "planning_time_s": plan.planning_time_s,
        "from_cache": plan.from_cache,
        "objective": plan.objective,
        "lower_bound": plan.lower_bound,
        "stages": [
            {
                "mesh": list(stage.mesh.shape),
                "axes": [name for name, _ in stage.mesh.axes],
                "devices": list(stage.mesh.device_ids),
                "layers": list(stage.layers),
                "num_flops": stage.num_flops,
                "num_whole_flops": stage.num_whole_flops,
                "time_s": stage.time_s,
                "peak_bytes": stage.peak_bytes,
                "memory": msgspec.to_builtins(stage.memory),
                "objective": stage.objective,
                "lower_bound": stage.lower_bound,
                "num_folded": stage.num_folded,
                "folded_objective": stage.folded_objective,
            }
            for stage in plan.stages
        ],
        "notes": [str(note) for note in plan.notes],
    }


def check_batch_args(batch_args: tuple[int, ...] | None, imported: Imported) -> None:
    """InputError (SHARDC-186) if one of `batch_args` is not an argument of the program."""
    count = len(imported.arguments)
    for position in batch_args or ():
        if position >= count:
            raise InputError(
                f"--batch-args has {position}, and the program has arguments 0 to {count - 1}",
                help="count the arguments of @main from 0",
                code="SHARDC-186",
            )
