"""The choices of a plan in words: their costs, and why the alternatives cost more."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from shardc import compiler, cutting
from shardc.analysis.program.arguments import argument_names
from shardc.analysis.shardings.counterfactuals import (
    Choice,
    Cost,
    Matches,
    Subject,
    explain_choices,
)
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.importer.requested_shardings import matches
from shardc.ir.context import Module
from shardc.ir.walk import main_function
from shardc.plan.decisions import Plan
from shardc.plan.layout import stage_names
from shardc.plan.notes import size
from shardc.plan.shape import PipelineShape
from shardc.report.summary import seconds
from shardc.report.words import about
from shardc.schedule.registry import schedule_named


def choices(module: Module, plan: Plan, cluster: Cluster, matches: Matches) -> list[Choice]:
    """The choices of a plan whose names match, from the prepared module that it was made for."""
    sharded = compiler.replay(module, plan)
    family = schedule_named(plan.schedule)
    work = cutting.work_of(sharded, PipelineShape.of(plan))
    stashes = family.in_flight(family.work(work, plan.num_chunks, plan.num_slices))
    stashes *= plan.num_replicas
    with sharded.context:
        return explain_choices(
            sharded.operation, plan.shardings, plan.cluster or cluster, stashes, matches
        )


def explained_choices(module: Module, plan: Plan, cluster: Cluster, pattern: str) -> str:
    """Text about the arguments and ops of a prepared module that match `pattern`: what other
    choices would cost; then what the plan itself says about `pattern`, parts of the model included.

    A pattern that matches an argument is not looked for inside the words of ops: `x` is in `max`.

    Raises:
        InputError: SHARDC-180, there is no match.
    """

    with module.context:
        names = argument_names(main_function(module.operation))
    is_argument = any(matches(pattern, name) for name in names)

    def fits(subject: Subject) -> bool:
        if subject.argument is not None:
            return matches(pattern, subject.argument)
        words = f"{subject.op} at {subject.place}"  # `*up*` does not mean all of stage0_update
        inside = pattern in words and not is_argument
        return inside or fnmatchcase(words, pattern) or subject.function == pattern

    found, said_of_it = choices(module, plan, cluster, fits), about(plan, pattern)
    if not (found or said_of_it):
        raise InputError(
            f"'{pattern}' matches no argument and no op of the plan, and no part of the model",
            help="name an argument (params.*.kernel), an op (dot_general), a source position"
            " (train.py:41) or a part of the model (blocks.3.*)",
        )
    alike: dict[tuple[str, ...], list[str]] = {}  # by what there is to say of them
    for choice in found:
        stage = stage_names([choice.stage], len(plan.own_stages))
        heading = f"{choice.name}, {stage}: {choice.sharding}"
        alike.setdefault((str(choice.stage), *_lines(choice)), []).append(heading)
    lines = [line for said, own in alike.items() for line in (*own, *said[1:])]
    return "".join(f"{line}\n" for line in (*lines, *said_of_it))


def _lines(choice: Choice) -> Iterator[str]:
    yield f"    {seconds(choice.cost.seconds)} per step: {_parts(choice.cost, '')}"
    for text, more in choice.alternatives:
        sign = "+" if more.seconds >= 0 else "-"
        change = f"{sign}{seconds(abs(more.seconds))}"
        yield f"    or {text}: {change} with its neighbours unchanged: {_parts(more, '+')}"
    if choice.num_ruled_out:
        yield f"    {choice.num_ruled_out} others are impossible with its neighbours unchanged"


def _parts(cost: Cost, plus: str) -> str:
    named = {
        "compute": cost.compute_s,
        "communication": cost.communication_s,
        "reshards": cost.reshard_s,
    }
    found = [f"{name} {_signed(value, plus)}" for name, value in named.items() if value]
    count = cost.num_bytes
    found.append(f"{'-' if count < 0 else plus}{size(abs(count))} of memory")
    return ", ".join(found)


def _signed(value: float, plus: str) -> str:
    return f"{'-' if value < 0 else plus}{seconds(abs(value))}"
