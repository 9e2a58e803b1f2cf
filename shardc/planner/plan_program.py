"""Plans a program: one search, and others if it runs short of memory or computes twice."""

from collections.abc import Callable, Iterator

import msgspec

from shardc.cluster import Cluster
from shardc.errors import InfeasibleError, ScheduleError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.notes import Note, NoteCode
from shardc.plan.shape import PipelineShape, Reuse
from shardc.planner.attempts import Progress
from shardc.planner.budget import BUDGET
from shardc.planner.record.residency_notes import kept_between
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
    If its microbatches are run through several times, it is planned again with values that are kept
    in between.

    Raises:
        ShardcError, KeyboardInterrupt: as `plan_program`, but for InfeasibleError.
    """
    planner = Planner(module, cluster, options, progress, wanted)
    too_large = planner.check_request()
    if too_large is not None:
        return planner, too_large
    best = planner, _run(planner)

    def again(reuse: Reuse) -> bool:
        """Plans the program again, and whether that gives a better plan, which is then the best."""
        nonlocal best
        left_s = max(options.time_limit_s - planner.tried.seconds_spent(), 1.0)
        less = msgspec.structs.replace(options, time_limit_s=left_s)
        other = Planner(module, cluster, less, progress, wanted, reuse)
        try:
            found = _run(other)
        except ScheduleError:  # too few microbatches are possible with what is kept, say
            if isinstance(best[1], Plan):
                return False
            raise
        if isinstance(best[1], Plan) and not _is_better(found, best[1]):
            return False
        best = other, found
        return True

    try:
        if _is_short(best[1]) and planner.splits.cast_once:
            again(msgspec.structs.replace(planner.splits.reuse, cast_once=False))
        for reuse in _keeping(*best, cluster):
            if again(reuse):
                break
    except KeyboardInterrupt:
        searched, found = best
        if isinstance(found, InfeasibleError):
            raise
        finish()
        notes = *found.notes, Note(NoteCode.INTERRUPTED)
        return searched, msgspec.structs.replace(found, notes=notes)
    return best


def _keeping(planner: Planner, plan: Plan | InfeasibleError, cluster: Cluster) -> Iterator[Reuse]:
    """Ways to keep values between the sweeps of a plan, most values first, that may fit."""
    if not isinstance(plan, Plan) or _was_interrupted(plan):
        return
    if all(note.code is not NoteCode.SEVERAL_RUNS for note in plan.notes):
        return
    last = None
    for price in BUDGET.keep_prices:
        reuse = msgspec.structs.replace(planner.splits.reuse, keep_price=price, cluster=cluster)
        splits = planner.splits.with_reuse(reuse)
        kept = kept_between(splits.of(PipelineShape.of(plan)))
        if kept is None:
            return
        share = kept.num_bytes // cluster.num_devices
        if share <= planner.limit and (kept.count, kept.num_bytes) != last:
            last = kept.count, kept.num_bytes
            yield reuse


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
    return not _was_interrupted(found) and any(stage.recompute for stage in found.stages)


def _was_interrupted(plan: Plan) -> bool:
    return any(note.code is NoteCode.INTERRUPTED for note in plan.notes)


def _is_better(other: Plan | InfeasibleError, plan: Plan) -> bool:
    """Whether a plan is faster, and meets all requests that `plan` meets."""
    if not isinstance(other, Plan) or len(other.unmet) > len(plan.unmet):
        return False
    return other.predicted.step_time_s < plan.predicted.step_time_s
