"""Parameters and optimizer state that every device of a stage holds whole."""

from collections.abc import Collection, Iterator

from shardc.cost.collectives import collective_s
from shardc.cost.model import CostModel
from shardc.plan.account import Account, ArgumentKind, PlacedArgument
from shardc.plan.decisions import Plan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.notes import size
from shardc.plan.predicted import Collective
from shardc.report.model import Finding
from shardc.report.summary import seconds

LARGE = 0.01  # a replicated value with at least this share of a device's state is large


def of_state(plan: Plan, account: Account, but: Collection[str]) -> Iterator[Finding]:
    """Large replicated optimizer state and parameters of each stage.

    The price in seconds is that of updating them whole on every device, which splitting saves;
    the optimizer state has it, if it is replicated. It is an estimate of the cost model, without
    another plan.

    Args:
        but: names of arguments that have another finding.
    """
    for stage, planned in enumerate(plan.stages):
        devices = len(planned.mesh.device_ids)
        if devices == 1:
            continue
        own = [a for a in account.arguments if a.stage == stage]
        state_bytes = sum(a.num_bytes for a in own if a.kind is not ArgumentKind.INPUTS)
        update_s = sum(
            part.seconds
            for part in account.parts
            if part.stage == stage and part.kind is FunctionKind.UPDATE
        )
        for kind, name, what in (
            (ArgumentKind.OPTIMIZER, "unsharded-optimizer", "optimizer state"),
            (ArgumentKind.PARAMETERS, "replicated-value", "parameters"),
        ):
            large = max(LARGE * state_bytes, 1)
            whole = [
                a
                for a in own
                if a.kind is kind and not a.lies.axes and a.num_bytes > large and a.name not in but
            ]
            if not whole:
                continue
            held = sum(a.num_bytes for a in whole)
            saved = held - held // devices
            saved_s = update_s * held / state_bytes * (1 - 1 / devices)
            update_s -= update_s * held / state_bytes
            yield Finding(
                name,
                f"{len(whole)} large value{'s' * (len(whole) > 1)} of the {what} of stage {stage}"
                f" {'are' if len(whole) > 1 else 'is'} replicated on {devices} devices"
                f" ({whole[0].name} first): {size(held)} on each",
                f"splitting them would save up to {size(saved)} on each"
                f"{_gathering(plan, stage, whole) if kind is ArgumentKind.PARAMETERS else ''};"
                " request that with a lower --memory-limit",
                saved_s,
                saved,
            )


def _gathering(plan: Plan, stage: int, whole: list[PlacedArgument]) -> str:
    """What it costs to gather split parameters for each pass over a microbatch, in words."""
    if plan.cluster is None:
        return ""
    mesh = plan.stages[stage].mesh
    links = CostModel(plan.cluster).links(mesh)
    axes = [(mesh.size(axis), links[axis]) for axis, _ in mesh.axes]
    names = tuple(axis for axis, _ in mesh.axes)
    one_s = sum(
        collective_s(Collective("all_gather", names, a.dtype, a.num_bytes, 1), axes) for a in whole
    )
    took_s = 2 * plan.num_microbatches * one_s
    return f" and, where products need them whole, add {seconds(took_s)} of all-gathers per step"
