"""The one order in which a single process dispatches the actions of all stages."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.errors import ShardcError
from shardc.plan.executable import Executable, ValueSpec
from shardc.plan.value_id import INDEX, is_accumulator, is_computed
from shardc.runtime.programs import Program
from shardc.schedule.tasks import Task

KIND_OF_LETTER = {"P": "before", "F": "forward", "B": "backward", "U": "update"}


@dataclass(frozen=True)
class Dispatch:
    """One program, run once: `action` as it prints, the program's position, the microbatch."""

    action: str
    program: int
    microbatch: int | None


def value_key(spec: ValueSpec, microbatch: int | None) -> tuple[str, int | None]:
    """Which value of the step `spec` means in a program that runs for `microbatch`."""
    growing = is_accumulator(spec.value)
    per_microbatch = spec.value == INDEX or (spec.per_microbatch and not growing)
    return spec.value, microbatch if per_microbatch else None


def is_given(spec: ValueSpec) -> bool:
    """Whether the value is there from the start of a step, or grows in place during it."""
    return not is_computed(spec.value)


def dispatch_order(
    executable: Executable, programs: Sequence[Program]
) -> tuple[list[Dispatch], list[Dispatch]]:
    """The actions before the update phase, and those of it.

    Ready-driven: round robin over the stages, each runs its next action as soon as the inputs of
    that action have been dispatched. Every stage's list is kept exactly. As dispatch does not wait
    for results, stage s works on microbatch k + 1 while stage s + 1 works on k.
    All updates come after all forward and backward actions: until then a failure costs nothing.

    Raises:
        ShardcError: SHARDC-260, an action can never run (a value has no producer before it).
    """
    known: set[tuple[str, int | None]] = set()
    heavy = _ready_driven(_before_and_heavy(executable, programs), programs, known)
    updates: list[Dispatch] = []
    for round_ in sorted({p.program.round for p in programs if p.program.kind == "update"}):
        of_round = [
            [_once(i, p, "U")]
            for i, p in enumerate(programs)
            if p.program.kind == "update" and p.program.round == round_
        ]
        updates += _ready_driven(of_round, programs, known)
    return heavy, updates


def _once(index: int, program: Program, letter: str) -> Dispatch:
    own = program.program
    return Dispatch(str(Task(own.stage, letter, own.round)), index, None)


def _before_and_heavy(executable: Executable, programs: Sequence[Program]) -> list[list[Dispatch]]:
    """Per stage its actions in order: what runs once before, then as the schedule says."""
    position = {
        (p.program.stage, p.program.kind): i
        for i, p in enumerate(programs)
        if p.program.kind in ("forward", "backward")
    }
    queues: list[list[Dispatch]] = [[] for _ in executable.meshes]
    before = [(p.program.round, i, p) for i, p in enumerate(programs) if p.program.kind == "before"]
    for _, i, program in sorted(before, key=lambda entry: entry[:2]):
        queues[program.program.stage].append(_once(i, program, "P"))
    for actions in executable.actions:
        for action in map(Task.parse, actions):
            kind = KIND_OF_LETTER.get(action.kind)
            index = position.get((action.stage, kind or ""))
            if kind is None:
                raise ShardcError(f"no program runs the action {action}", code="SHARDC-260")
            if index is not None:
                queues[action.stage].append(Dispatch(str(action), index, action.microbatch))
    return queues


def _ready_driven(
    queues: list[list[Dispatch]],
    programs: Sequence[Program],
    known: set[tuple[str, int | None]],
) -> list[Dispatch]:
    order: list[Dispatch] = []
    heads = [0] * len(queues)
    while len(order) < sum(map(len, queues)):
        num_before = len(order)
        for stage, queue in enumerate(queues):
            if heads[stage] == len(queue):
                continue
            entry = queue[heads[stage]]
            if not _missing(programs[entry.program], entry.microbatch, known):
                heads[stage] += 1
                order.append(entry)
                results = programs[entry.program].results
                known.update(value_key(spec, entry.microbatch) for spec in results)
        if len(order) == num_before:
            stuck = [
                queue[head] for queue, head in zip(queues, heads, strict=True) if head < len(queue)
            ]
            raise ShardcError(
                "; ".join(
                    f"action {entry.action} waits for"
                    f" {_missing(programs[entry.program], entry.microbatch, known)}"
                    for entry in stuck
                ),
                code="SHARDC-260",
            )
    return order


def _missing(
    program: Program, microbatch: int | None, known: set[tuple[str, int | None]]
) -> list[str]:
    return [
        spec.value
        for spec in program.args
        if not is_given(spec) and value_key(spec, microbatch) not in known
    ]
