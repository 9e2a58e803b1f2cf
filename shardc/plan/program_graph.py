"""The task graph of a step's programs, for a schedule to order: their needs and buffers.

Derived from the arguments and results of the programs, not from counts, so it covers skip
connections, gradients from several stages, and values that one task keeps for another.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from shardc.plan.executable import ArgumentSpec, Executable, ValueSpec, moved_values
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_accumulator, is_argument, is_computed, value_id
from shardc.schedule.moves import Moments, moments
from shardc.schedule.next_step import Between
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    GATHER,
    ONCE_PER_STEP,
    PROLOGUE,
    REDUCE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Buffer,
    Need,
    Schedule,
    Task,
    TaskGraph,
    parse_lanes,
)

KINDS_OF_ACTION = {
    PROLOGUE: (FunctionKind.BEFORE,),
    FORWARD: (FunctionKind.FORWARD,),
    BACKWARD: (FunctionKind.BACKWARD,),
    WEIGHT: (FunctionKind.WEIGHT,),
    WHOLE_BACKWARD: (FunctionKind.BACKWARD, FunctionKind.WEIGHT),
    UPDATE: (FunctionKind.UPDATE,),
    GATHER: (FunctionKind.GATHER,),
    REDUCE: (FunctionKind.REDUCE,),
}
"""For each kind of task, the programs that it runs, in order."""


class ProgramValues(NamedTuple):
    """The kind of a stage function, and its arguments and results."""

    stage: int
    kind: FunctionKind
    round: int
    args: tuple[ValueSpec, ...]
    results: tuple[ValueSpec, ...]


Place = tuple[int, int]  # a device group, and the number of a sharding in its bundle
Key = tuple[int, int | None]  # a bundle, and its microbatch, its move, or None


class _Use(NamedTuple):
    """A bundle that a program takes or gives: whether one per microbatch, and its sharding."""

    bundle: int
    many: bool
    sharding: int


@dataclass(frozen=True)
class _Bundle:
    """Values alike: the same programs make and read them, and the same ones of these agree on a
    sharding. They live and travel together.

    Attributes:
        num_bytes: of the whole values.
        shardings: for each value, its shardings by their number.
        move: G or R, if there is one for each of these moves of the stage (`moved_values`).
    """

    num_bytes: tuple[int, ...]
    shardings: tuple[tuple[TensorSharding, ...], ...]
    is_sum: bool
    is_returned: bool
    move: str

    def held_bytes(self, mesh: Mesh, sharding: int) -> int:
        """Bytes on one device of a mesh."""
        return sum(
            num_bytes // mesh.num_shards(shardings[sharding].axes)
            for num_bytes, shardings in zip(self.num_bytes, self.shardings, strict=True)
        )


@dataclass(frozen=True)
class _Interface:
    """The bundles that a program takes and gives."""

    takes: tuple[_Use, ...]
    gives: tuple[_Use, ...]


@dataclass
class _Made:
    """The producer of a bundle, and its readers by place."""

    maker: Task
    use: _Use
    readers: dict[Place, list[Task]] = field(default_factory=dict)


def program_graph(
    programs: Sequence[ProgramValues],
    schedule: Schedule,
    tasks: TaskGraph,
    meshes: Sequence[Mesh],
    returned: Collection[str] = (),
) -> TaskGraph:
    """The tasks of `tasks`, with the needs and buffers derived from the programs.

    A value that is read where it is made is one buffer there. Each other device group or sharding
    in which it is read is a further buffer, filled as soon as the value exists. Values that live
    and travel together share their buffers, because a step with many microbatches has millions of
    values. The bytes of a need are all that its task sends to that device group; the bytes of a
    buffer are those on one device. Arguments and sums over the microbatches exist during the whole
    step and are not buffers, nor are results of updates; gathered parameters are, and so are sums
    that an R takes.

    Args:
        tasks: all tasks, and the device group of each stage.
        meshes: one per stage and copy.
        returned: values that the step returns; they live until its end.
    """
    num_stages = 1 + max((task.stage for task in tasks.tasks), default=0)
    bundles, interfaces = _bundled(programs, returned)
    stand = moments(schedule.lanes)
    position = {task: i for lane in schedule.lanes for i, task in enumerate(lane)}

    def key_of(use: _Use, task: Task) -> Key:
        return _key(bundles[use.bundle], use, task, stand[task])

    by_place: dict[tuple[int, FunctionKind, int], list[_Interface]] = {}
    for program, interface in zip(programs, interfaces, strict=True):
        by_place.setdefault((program.stage, program.kind, program.round), []).append(interface)
    runs = {task: _programs_of(task, num_stages, by_place) for task in tasks.tasks}
    made: dict[Key, _Made] = {}
    adders: dict[Key, list[Task]] = {}
    for task, own in sorted(runs.items(), key=lambda each: position[each[0]]):
        for use in (use for each in own for use in each.gives):
            key = key_of(use, task)
            if bundles[use.bundle].is_sum:
                adders.setdefault(key, []).append(task)
            if bundles[use.bundle].move or not bundles[use.bundle].is_sum:
                made.setdefault(key, _Made(task, use))
    waits: dict[Task, dict[Task, None]] = {task: {} for task in runs}
    for task, own in runs.items():
        group = tasks.group(task)
        for each in own:
            added = {use.bundle for use in each.gives}
            for use in each.takes:
                bundle, key = bundles[use.bundle], key_of(use, task)
                if key in made:
                    made[key].readers.setdefault((group, use.sharding), []).append(task)
                if not bundle.is_sum:
                    waits[task][made[key].maker] = None
                elif use.bundle not in added:
                    waits[task].update(dict.fromkeys(adders.get(key, ())))
    sent = _sent_bytes(made.values(), bundles, tasks)
    needs = {
        task: tuple(
            Need(
                other,
                sent.get((other, tasks.group(task)), 0),
                tasks.group(other),
                tasks.group(task),
            )
            for other in found
            if other != task
        )
        for task, found in waits.items()
    }
    last = {schedule.groups[row]: lane[-1] for row, lane in enumerate(schedule.lanes) if lane}
    mesh_of = {group: meshes[stage] for (stage, copy), group in tasks.groups.items() if not copy}
    held = cache(lambda bundle, group, n: bundles[bundle].held_bytes(mesh_of[group], n))
    buffers = [
        Buffer(group, held(value.use.bundle, group, sharding), value.maker, users)
        for value in made.values()
        if value.maker.kind != UPDATE
        for (group, sharding), users in _users(
            value, tasks, last if bundles[value.use.bundle].is_returned else {}
        )
    ]
    return TaskGraph(needs, tasks.groups, tuple(buffers))


def _bundled(
    programs: Sequence[ProgramValues], returned: Collection[str]
) -> tuple[list[_Bundle], list[_Interface]]:
    """The bundles, and the interface of each program; arguments are in none."""
    # Of each value: its uses as (program, whether it is a result, whether many, sharding).
    uses: dict[str, list[tuple[int, bool, bool, int]]] = {}
    shardings: dict[str, dict[TensorSharding, int]] = {}
    num_bytes: dict[str, int] = {}
    for number, program in enumerate(programs):
        for is_result, specs in ((True, program.results), (False, program.args)):
            for spec in specs:
                name = spec.value
                if not (is_computed(name) or is_accumulator(name)):
                    continue
                known = shardings.setdefault(name, {})
                sharding = known.setdefault(spec.sharding, len(known))
                use = number, is_result, spec.per_microbatch, sharding
                uses.setdefault(name, []).append(use)
                if is_result or name not in num_bytes:
                    num_bytes[name] = spec.num_bytes
    moved = moved_values(programs)
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, own in uses.items():
        kind = is_accumulator(name), name in returned, moved.get(name, "")
        alike.setdefault((*kind, *own), []).append(name)
    bundles = []
    sides: list[tuple[list[_Use], list[_Use]]] = [([], []) for _ in programs]
    for bundle, names in enumerate(alike.values()):
        first = names[0]
        each_bytes = tuple(num_bytes[name] for name in names)
        each_sharding = tuple(tuple(shardings[name]) for name in names)
        move = moved.get(first, "")
        bundles.append(
            _Bundle(each_bytes, each_sharding, is_accumulator(first), first in returned, move)
        )
        for number, is_result, many, sharding in uses[first]:
            sides[number][is_result].append(_Use(bundle, many, sharding))
    return bundles, [_Interface(tuple(takes), tuple(gives)) for takes, gives in sides]


def between_steps(
    programs: Sequence[ProgramValues],
    arguments: Sequence[ArgumentSpec],
    schedule: Schedule,
    tasks: TaskGraph,
) -> Between:
    """The state that a step's tasks read from other device groups, which the last step updates.

    Each first task that reads such an argument waits for the last update of the stage that owns it.
    The bytes are 0: what is sent when a step begins is priced elsewhere, or not at all.
    """
    num_stages = 1 + max((task.stage for task in tasks.tasks), default=0)
    updated: dict[int, Task] = {}  # the last update of each stage
    first: dict[tuple[int, FunctionKind], Task] = {}
    for task in (task for lane in schedule.lanes for task in lane):
        place = task.place(num_stages)
        if task.kind == UPDATE:
            updated[place] = task
        for kind in KINDS_OF_ACTION[task.kind]:
            first.setdefault((place, kind), task)
    found: dict[Task, dict[Task, Need]] = {}
    for program in programs:
        reader = first.get((program.stage, program.kind))
        for spec in program.args:
            if reader is None or not is_argument(spec.value):
                continue
            argument = arguments[value_id(spec.value).number]
            owner = updated.get(argument.stage)
            if owner is None or argument.aliased_result is None:
                continue
            source, target = tasks.group(owner), tasks.group(reader)
            if source != target:
                found.setdefault(reader, {})[owner] = Need(owner, 0, source, target)
    return {reader: tuple(needs.values()) for reader, needs in found.items()}


def executable_graph(executable: Executable) -> tuple[Schedule, TaskGraph]:
    """The lanes of an executable, with their needs and buffers."""
    lanes = parse_lanes(executable.actions)
    schedule = Schedule(lanes)
    groups = {(task.stage, task.replica): row for row, lane in enumerate(lanes) for task in lane}
    values = [
        ProgramValues(each.stage, each.kind, each.round, each.args, each.results)
        for each in executable.programs
    ]
    returned = {result.value for result in executable.results}
    tasks = TaskGraph({task: () for lane in lanes for task in lane}, groups)
    return schedule, program_graph(values, schedule, tasks, executable.meshes, returned)


def _programs_of(
    task: Task,
    num_stages: int,
    by_place: Mapping[tuple[int, FunctionKind, int], list[_Interface]],
) -> list[_Interface]:
    """The programs of a task; none if its stage has nothing to do at that point."""
    number = task.microbatch if task.kind == UPDATE else task.slice
    return [
        each
        for kind in KINDS_OF_ACTION[task.kind]
        for each in by_place.get((task.place(num_stages), kind, number), ())
    ]


def _key(bundle: _Bundle, use: _Use, task: Task, stands: Moments) -> Key:
    if bundle.move:
        return use.bundle, stands.number(bundle.move)
    if bundle.is_sum:
        return use.bundle, None
    many = use.many and task.kind not in ONCE_PER_STEP
    return use.bundle, task.microbatch if many else None


def _sent_bytes(
    made: Collection[_Made], bundles: Sequence[_Bundle], tasks: TaskGraph
) -> dict[tuple[Task, int], int]:
    """The bytes that each task sends to each other device group, all its values together."""
    whole = [sum(bundle.num_bytes) for bundle in bundles]
    sent: dict[tuple[Task, int], int] = {}
    for value in made:
        source = tasks.group(value.maker)
        for target, _ in value.readers:
            if target != source:
                key = (value.maker, target)
                sent[key] = sent.get(key, 0) + whole[value.use.bundle]
    return sent


def _users(
    value: _Made, tasks: TaskGraph, last: Mapping[int, Task]
) -> Iterator[tuple[Place, tuple[Task, ...]]]:
    """Each place of a value and its users there; `last`: last task of each group, if the value
    lives until then."""
    home = tasks.group(value.maker), value.use.sharding
    for place in dict.fromkeys((home, *value.readers)):
        users = dict.fromkeys(value.readers.get(place, ()))
        if place == home and home[0] in last:
            users[last[home[0]]] = None
        yield place, tuple(users)
