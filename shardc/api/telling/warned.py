"""Warnings about a plan, at the line of the caller of `shardc.jit`."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from shardc.errors import RequestWarning
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.plan.program_graph import executable_graph
from shardc.schedule.next_step import wait_for_all
from shardc.schedule.tasks import UPDATE

_OWN = str(Path(__file__).parents[1])  # frames of this package are skipped


def warn_of_unmet(plan: Plan) -> None:
    """A RequestWarning, at the caller's line, for each request that the plan does not meet."""
    for note in plan.unmet:
        warnings.warn(str(note), RequestWarning, skip_file_prefixes=(_OWN,))


def warn_of_held_updates(executable: Executable) -> None:
    """A RequestWarning if early updates were requested and all that consume arguments wait for all
    stages."""
    if not executable.early_updates:
        return
    _, graph = executable_graph(executable)
    consuming = {
        (each.stage, each.round) for each in executable.programs if each.consumes_arguments
    }
    updates = [
        task
        for task in graph.tasks
        if task.kind == UPDATE and (task.place(executable.num_stages), task.microbatch) in consuming
    ]
    if wait_for_all(graph, updates):
        warnings.warn(
            "early_updates: no update can run early, because each needs a value that all stages"
            " have a part in, such as a global norm, and is held back until it is known",
            RequestWarning,
            skip_file_prefixes=(_OWN,),
        )


def warn_of_placements(places: Sequence[str]) -> None:
    """A RequestWarning for values that the step moves to another memory."""
    if places:
        warnings.warn(
            f"the step moves values to another memory ({len(places)} times, first"
            f" at {places[0]}): shardc leaves them in device memory; memory kinds of"
            " arguments and results are respected",
            RequestWarning,
            skip_file_prefixes=(_OWN,),
        )


def warn_of_silent_calls(places: Sequence[str]) -> None:
    """A RequestWarning for each callback that is dropped."""
    for place in places:
        warnings.warn(
            f"the callback at {place} is inside a loop or a branch, where shardc cannot call the"
            " host: it is dropped",
            RequestWarning,
            skip_file_prefixes=(_OWN,),
        )
