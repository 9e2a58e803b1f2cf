"""Plans a program: one search, and another one if the first runs short of memory."""

from collections.abc import Callable

import msgspec

from shardc.cluster import Cluster
from shardc.errors import InfeasibleError, ScheduleError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.notes import Note, NoteCode
from shardc.planner.attempts import Progress
from shardc.planner.budget import BUDGET
from shardc.planner.search import Planner
from shardc.solver.interrupt import finish


def plan_program(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
    take: Callable[[Module], None] | None = None,
) -> Plan:
    """The best plan found for a prepared module, which is not changed.

    If the program cannot be cut into the requested microbatches or stages, the plan
    has as many as possible, and says so in `unmet`. Ctrl-C returns the best plan so far.

    Args:
        take: gets the module with the plan's shardings, as `shardc.compiler.replay` makes it.
    Raises:
        MicrobatchError: SHARDC-141, the named batch arguments cannot be the batch.
        StageError: SHARDC-162, more stages than devices.
        ClusterError: SHARDC-101, stages on the requested mesh take more devices than there are.
        InfeasibleError: SHARDC-220, no shape fits into the memory limit.
        KeyboardInterrupt: interrupted before there was any plan.
    """
    planner, found = search_program(module, cluster, options, progress)
    if isinstance(found, InfeasibleError):
        raise found
    if take is not None and planner.tried.best is not None:
        take(planner.tried.best.module)
    return found


def search_program(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
    wanted: int = BUDGET.wanted,
) -> tuple[Planner, Plan | InfeasibleError]:
    """The search that found the best plan, and the plan, or why none fits.

    Parameters are cast to narrower types once per step (`shardc-cast-parameters-once`). If nothing
    fits beside the copies, or a stage recomputes all it can, the program is planned again without.

    Raises:
        ShardcError, KeyboardInterrupt: as `plan_program`, but for InfeasibleError.
    """
    planner = Planner(module, cluster, options, progress, wanted)
    too_large = planner.check_request()
    if too_large is not None:
        return planner, too_large
    found = _run(planner)
    if not (_is_short(found) and planner.splits.cast_once):
        return planner, found
    left_s = max(options.time_limit_s - planner.tried.seconds_spent(), 1.0)
    less = msgspec.structs.replace(options, time_limit_s=left_s)
    again = Planner(module, cluster, less, progress, wanted, cast_once=False)
    try:
        other = _run(again)
    except KeyboardInterrupt:
        if isinstance(found, InfeasibleError):
            raise
        finish()
        notes = *found.notes, Note(NoteCode.INTERRUPTED)
        return planner, msgspec.structs.replace(found, notes=notes)
    if isinstance(found, Plan) and not _is_faster(other, found):
        return planner, found
    return again, other


def _run(planner: Planner) -> Plan | InfeasibleError:
    try:
        return planner.run()
    except InfeasibleError as error:
        return error
    except ScheduleError as error:
        fewer = [note for note in planner.unmet if note.data["what"] == "microbatches"]
        if not fewer:
            raise
        message, help = f"{error.message}; {fewer[0]}", "take another schedule, such as 1f1b"
        raise ScheduleError(message, help=help, code=error.code) from error


def _is_short(found: Plan | InfeasibleError) -> bool:
    """Whether memory may be short because of the copies of cast parameters."""
    if isinstance(found, InfeasibleError):
        return True
    interrupted = NoteCode.INTERRUPTED in {note.code for note in found.notes}
    return not interrupted and any(stage.recompute for stage in found.stages)


def _is_faster(other: Plan | InfeasibleError, plan: Plan) -> bool:
    return isinstance(other, Plan) and other.predicted.step_time_s < plan.predicted.step_time_s
