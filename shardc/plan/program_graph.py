"""The task graph of a step's programs, for a schedule to order: their needs and buffers.

Derived from the arguments and results of the programs, not from counts, so it covers skip
connections, gradients from several stages, and values that one task keeps for another.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.plan.executable import Executable, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_accumulator, is_computed
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    ONCE_PER_STEP,
    PROLOGUE,
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
}
"""For each kind of task, the programs that it runs, in order."""


class ProgramValues(NamedTuple):
    """The kind of a stage function, and its arguments and results."""

    stage: int
    kind: FunctionKind
    round: int
    args: tuple[ValueSpec, ...]
    results: tuple[ValueSpec, ...]


Key = tuple[str, int | None]  # a value, and its microbatch or None
Place = tuple[int, TensorSharding]  # a device group, and the value's sharding there


@dataclass
class _Value:
    """The producer of a value, and its readers by place."""

    maker: Task
    spec: ValueSpec
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
    in which it is read is a further buffer, filled as soon as the value exists. The bytes of a need
    are all that its task sends to that device group; the bytes of a buffer are those on one device.
    Arguments and sums over the microbatches exist during the whole step and are not buffers,
    nor are results of updates.

    Args:
        tasks: all tasks, and the device group of each stage.
        meshes: one per stage and copy.
        returned: values that the step returns; they live until its end.
    """
    num_stages = 1 + max((task.stage for task in tasks.tasks), default=0)
    by_place: dict[tuple[int, FunctionKind, int], list[ProgramValues]] = {}
    for each in programs:
        by_place.setdefault((each.stage, each.kind, each.round), []).append(each)
    runs = {task: _programs_of(task, num_stages, by_place) for task in tasks.tasks}
    values: dict[Key, _Value] = {}
    adders: dict[str, list[Task]] = {}
    for task, own in runs.items():
        for spec in (spec for each in own for spec in each.results):
            if is_accumulator(spec.value):
                adders.setdefault(spec.value, []).append(task)
            else:
                values[_key(spec, task)] = _Value(task, spec)
    waits: dict[Task, dict[Task, None]] = {task: {} for task in runs}
    for task, own in runs.items():
        for each in own:
            added = {spec.value for spec in each.results}
            for spec in each.args:
                if is_accumulator(spec.value) and spec.value not in added:
                    waits[task].update(dict.fromkeys(adders.get(spec.value, ())))
                elif is_computed(spec.value):
                    value = values[_key(spec, task)]
                    place = tasks.group(task), spec.sharding
                    value.readers.setdefault(place, []).append(task)
                    waits[task][value.maker] = None
    sent = _sent_bytes(values.values(), tasks)
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
    buffers = [
        buffer
        for (name, _), value in values.items()
        if value.maker.kind != UPDATE
        for buffer in _buffers(value, tasks, meshes, last if name in returned else {})
    ]
    return TaskGraph(needs, tasks.groups, tuple(buffers))


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
    by_place: Mapping[tuple[int, FunctionKind, int], list[ProgramValues]],
) -> list[ProgramValues]:
    """The programs of a task; none if its stage has nothing to do at that point."""
    number = task.microbatch if task.kind == UPDATE else task.slice
    return [
        each
        for kind in KINDS_OF_ACTION[task.kind]
        for each in by_place.get((task.place(num_stages), kind, number), ())
    ]


def _key(spec: ValueSpec, task: Task) -> Key:
    many = spec.per_microbatch and task.kind not in ONCE_PER_STEP
    return spec.value, task.microbatch if many else None


def _sent_bytes(values: Collection[_Value], tasks: TaskGraph) -> dict[tuple[Task, int], int]:
    """The bytes that each task sends to each other device group, all its values together."""
    sent: dict[tuple[Task, int], int] = {}
    for value in values:
        source = tasks.group(value.maker)
        for target, _ in value.readers:
            if target != source:
                key = (value.maker, target)
                sent[key] = sent.get(key, 0) + value.spec.num_bytes
    return sent


def _buffers(
    value: _Value, tasks: TaskGraph, meshes: Sequence[Mesh], last: Mapping[int, Task]
) -> list[Buffer]:
    """One buffer per place of a value; `last`: last task of each group, if it lives until then."""
    home = tasks.group(value.maker), value.spec.sharding
    mesh_of = {group: meshes[stage] for (stage, copy), group in tasks.groups.items() if not copy}
    found = []
    for place in dict.fromkeys((home, *value.readers)):
        group, sharding = place
        users = list(value.readers.get(place, ()))
        if place == home and group in last:
            users.append(last[group])
        num_bytes = value.spec.num_bytes // mesh_of[group].num_shards(sharding.axes)
        found.append(Buffer(group, num_bytes, value.maker, tuple(dict.fromkeys(users))))
    return found
