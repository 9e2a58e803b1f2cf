"""The plan of a prepared module: from the cache, from the search, or the given one."""

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from shardc.analysis.shardings.known_problems import remembered
from shardc.api.planning import plan_cache
from shardc.cluster import Cluster
from shardc.ir.bugs import bugs_while
from shardc.ir.copy import module_digest
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.allowed_request import print_request
from shardc.planner.hand.beside import with_usual_plans
from shardc.planner.hand.hand_plan import hand_plan
from shardc.planner.plan_program import plan_program
from shardc.progress import say, shown_progress, tell
from shardc.solver.interrupt import stoppable

if TYPE_CHECKING:
    from shardc.ir.context import Module

OBJECTS_PER_COLLECTION = 50_000


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Inside, Python's collector of cycles runs less often: planning makes many objects and few
    cycles, and was held up for a seventh of its time."""
    young, *older = gc.get_threshold()
    gc.set_threshold(young and max(young, OBJECTS_PER_COLLECTION), *older)  # 0: it is off
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


def find_plan(
    prepared: "Module",
    cluster: Cluster,
    options: PlanOptions,
    *,
    use_cache: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT,),
    take: "Callable[[Module], None] | None" = None,
) -> Plan:
    """The plan of a prepared module: loaded from the cache, or made and cached.

    Interrupted planning returns the best plan so far, which is not cached.

    Args:
        signals: that interrupt it, on the main thread.
        take: gets the sharded module of a plan that is searched for, not of one from the cache.
    """
    digest = plan_cache.fingerprint(module_digest(prepared), cluster, options)
    if use_cache and (kept := plan_cache.load(digest)) is not None:
        return kept
    with _planning(prepared, cluster, options, signals), remembered():
        plan = plan_program(prepared, cluster, options, say, take)
    plan = msgspec.structs.replace(plan, fingerprint=digest)
    if _was_interrupted(plan):
        tell("planning was interrupted; going on with the best plan so far")
    elif use_cache:
        plan_cache.store(plan)
    return plan


def find_beside(
    prepared: "Module",
    plan: Plan,
    cluster: Cluster,
    options: PlanOptions,
    *,
    use_cache: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT,),
) -> Plan:
    """The same plan, ranked with the plans that a person would write by hand.

    They are planned once and kept with the plan, in the cache too. Ctrl-C keeps those so far; after
    an interrupt of the search itself there are none.

    Args:
        signals: as in `find_plan`.
    """
    if _was_interrupted(plan):
        return plan
    with _planning(prepared, cluster, options, signals):
        ranked = with_usual_plans(prepared, plan, cluster, options, say)
    known = use_cache and plan.fingerprint and ranked is not plan
    if known and ranked.account is not None and ranked.account.has_usual:
        plan_cache.store(ranked)
    return ranked


@contextmanager
def _planning(
    prepared: "Module", cluster: Cluster, options: PlanOptions, signals: Sequence[signal.Signals]
) -> Iterator[None]:
    """Shows progress, heeds interrupts, and reports bugs with the module."""
    bugs = bugs_while("planning", prepared, print_request(cluster, options))
    with shown_progress("planning"), stoppable(signals), bugs, collected_seldom():
        yield


def _was_interrupted(plan: Plan) -> bool:
    return NoteCode.INTERRUPTED in {note.code for note in plan.notes}


def plan_as_given(
    prepared: "Module",
    cluster: Cluster,
    options: PlanOptions,
    given: Plan | StagesSpec | None,
    *,
    beside: bool = False,
    use_cache: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT,),
    take: "Callable[[Module], None] | None" = None,
) -> Plan:
    """The given plan, the plan for a hand-written pipeline, or that of `find_plan`.

    Args:
        beside: also rank the plans that a person would write by hand (`find_beside`).
    """
    if isinstance(given, StagesSpec):
        with _planning(prepared, cluster, options, signals):
            say(f"planning '{given.name}'")
            plan = hand_plan(prepared, cluster, options, given)
    else:
        plan = given or find_plan(
            prepared, cluster, options, use_cache=use_cache, signals=signals, take=take
        )
    if not beside:
        return plan
    machine = plan.cluster or cluster
    return find_beside(prepared, plan, machine, options, use_cache=use_cache, signals=signals)
