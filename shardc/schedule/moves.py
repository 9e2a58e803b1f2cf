"""The dependences and buffers of moves: of parameters, of gradients, and of activations.

Moves run beside the computation of their device group. A lane continues after an O or an R once the
previous one has ended, so at most two of them hold what they move, however slow the link is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shardc.errors import ScheduleError
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    GATHER,
    LINKS,
    LOAD,
    OFFLOAD,
    REDUCE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Buffer,
    Need,
    Schedule,
    Task,
    TaskGraph,
)
from shardc.schedule.work import Work

Place = tuple[int, int]  # stage and replica


class Moments(NamedTuple):
    """Where a task stands among the moves of its stage.

    Attributes:
        gathered: number of the last G in front of it, or of itself; -1: there is none.
        reduced: how many Rs stand in front of it.
    """

    gathered: int = -1
    reduced: int = 0

    def number(self, move: str) -> int:
        """The number of the value, made by a G or taken by an R, that a task uses."""
        return self.gathered if move == GATHER else self.reduced


START = Moments()


def moments(lanes: Iterable[Sequence[Task]]) -> dict[Task, Moments]:
    """Where each task stands; all tasks of a stage and copy are in one lane."""
    found: dict[Task, Moments] = {}
    for lane in lanes:
        now: dict[Place, Moments] = {}
        for task in lane:
            at = now.get(_place(task), START)
            if task.kind == GATHER:
                at = now[_place(task)] = Moments(at.gathered + 1, at.reduced)
            elif task.kind == REDUCE:
                now[_place(task)] = Moments(at.gathered, at.reduced + 1)
            found[task] = at
    return found


def with_moves(graph: TaskGraph, schedule: Schedule, work: Work) -> TaskGraph:
    """`graph` with the moves of a schedule.

    Raises:
        ScheduleError: SHARDC-248, a task uses parameters that are not gathered or activations that
            are on the host; gradients stay unreduced; a move moves nothing.
    """
    needs = {task: list(own) for task, own in graph.needs.items()}
    made: list[Buffer] = []
    moved: dict[Task, tuple[Task, Task | None]] = {}  # F -> its L, and the O behind its O
    for row, lane in enumerate(schedule.lanes):
        if not (work.gathers or any(task.kind in LINKS for task in lane)):
            continue
        found = _Lane(schedule, row, work)
        found.follow()
        group = schedule.groups[row]
        for task, waits in found.waits.items():
            needs.setdefault(task, []).extend(Need(each, 0, group, group) for each in waits)
        size = work.parameters * work.share * work.slices
        made += [Buffer(group, size, maker, tuple(users)) for maker, users in found.held]
        moved |= found.moved
    buffers = [each for buffer in graph.buffers for each in _moved(buffer, moved)]
    return replace(
        graph,
        needs={task: tuple(dict.fromkeys(own)) for task, own in needs.items()},
        buffers=(*buffers, *made),
    )


def _moved(buffer: Buffer, moved: dict[Task, tuple[Task, Task | None]]) -> list[Buffer]:
    """A buffer, or the two that hold the same before O and from L on."""
    if buffer.maker not in moved:
        return [buffer]
    load, behind = moved[buffer.maker]
    offload = load._replace(kind=OFFLOAD)
    until = load if behind is None else behind
    return [buffer._replace(users=(offload, until)), buffer._replace(maker=load)]


@dataclass
class _Lane:
    """What the tasks of one lane find gathered, unreduced or on the host.

    Attributes:
        waits: task -> tasks of the same lane that must end first, on account of moves.
        held: (maker, users) of gathered parameters and of unreduced gradients.
        moved: F -> the L of its activations, and the O behind its O in the lane.
    """

    schedule: Schedule
    row: int
    work: Work
    waits: dict[Task, list[Task]] = field(default_factory=dict)
    held: list[tuple[Task, list[Task]]] = field(default_factory=list)
    moved: dict[Task, tuple[Task, Task | None]] = field(default_factory=dict)
    _gathered: dict[Place, tuple[Task, list[Task]]] = field(default_factory=dict)  # G and users
    _unreduced: dict[Place, list[Task]] = field(default_factory=dict)
    _reduced: dict[Place, list[Task]] = field(default_factory=dict)
    _ran: dict[Task, int] = field(default_factory=dict)
    _last: dict[str, Task] = field(default_factory=dict)  # the last O and the last R
    _ahead: list[Task] = field(default_factory=list)  # for which the next task waits

    def follow(self) -> None:
        """Fills `waits`, `held` and `moved`."""
        lane = self.schedule.lanes[self.row]
        places = {
            kind: {_place(t) for t in lane if self.work.gathers or t.kind == kind}
            for kind in (GATHER, REDUCE)
        }
        for position, task in enumerate(lane):
            place = _place(task)
            if task.kind == GATHER:
                self._gathered[place] = task, []
                self.held.append(self._gathered[place])
                self.waits[task] = []
            elif task.kind == REDUCE:
                self._reduce(task, position)
            elif task.kind in (OFFLOAD, LOAD):
                self._to_or_from_host(task, position)
            else:
                if self._ahead:
                    self._wait(task, self._ahead)
                    self._ahead = []
                if place in places[GATHER] and task.kind in (FORWARD, BACKWARD, WHOLE_BACKWARD):
                    self._use(task, position)
                if place in places[REDUCE] and self._makes_gradients(task):
                    self._unreduced.setdefault(place, []).append(task)
                if task.kind in (BACKWARD, WHOLE_BACKWARD):
                    self._need_loaded(task, position)
                if task.kind == UPDATE and not task.microbatch:
                    self._wait(task, self._reduced.get(place, []))
            self._ran[task] = position
        self._end()

    def _makes_gradients(self, task: Task) -> bool:
        whole = task.kind == BACKWARD and not self.work.split_backward
        return whole or task.kind in (WEIGHT, WHOLE_BACKWARD)

    def _wait(self, task: Task, tasks: Sequence[Task]) -> None:
        self.waits.setdefault(task, []).extend(tasks)

    def _in_turn(self, task: Task) -> None:
        """The lane continues after `task` once the previous move of its kind has ended."""
        before = self._last.get(task.kind)
        if before is not None:
            self._wait(task, [before])
            self._ahead.append(before)
        self._last[task.kind] = task

    def _use(self, task: Task, position: int) -> None:
        found = self._gathered.get(_place(task))
        if found is None:
            raise self._refusal(
                f"{task} uses the parameters of stage {task.stage}, which no G has gathered",
                position,
                f"put {task.stage}G0 in front of it",
            )
        gather, users = found
        self._wait(task, [gather])
        users.append(task)

    def _reduce(self, task: Task, position: int) -> None:
        place = _place(task)
        own = self._unreduced.pop(place, [])
        if not own:
            raise self._refusal(
                f"{task} finds no gradients that are not reduced", position, "take it out"
            )
        self._wait(task, own)
        before = self._last.get(REDUCE)
        if before is not None:  # its gradients are held until the lane continues after this one
            next(u for _, u in reversed(self.held) if u[:1] == [before]).append(task)
        self._in_turn(task)
        self._reduced.setdefault(place, []).append(task)
        self.held.append((own[0], [task]))

    def _to_or_from_host(self, task: Task, position: int) -> None:
        forward, offload = task._replace(kind=FORWARD), task._replace(kind=OFFLOAD)
        backwards = {task._replace(kind=kind) for kind in (BACKWARD, WHOLE_BACKWARD)}
        if task.kind == OFFLOAD:
            if forward not in self._ran or task in self._ran or backwards & self._ran.keys():
                raise self._refusal(
                    f"{task} finds no activations that it could offload",
                    position,
                    f"put it once between {forward} and the backward",
                )
            before = self._last.get(OFFLOAD)
            if before is not None:
                own = before._replace(kind=FORWARD)
                self.moved[own] = (self.moved[own][0], task)
            self._wait(task, [forward])
            self._in_turn(task)
            self.moved[forward] = (task._replace(kind=LOAD), None)
        else:
            if offload not in self._ran or task in self._ran:
                raise self._refusal(
                    f"{task} finds no activations on the host", position, f"put {offload} before it"
                )
            self._wait(task, [offload])

    def _need_loaded(self, task: Task, position: int) -> None:
        load = task._replace(kind=LOAD)
        if task._replace(kind=OFFLOAD) not in self._ran:
            return
        if load not in self._ran:
            raise self._refusal(
                f"{task} needs activations that are on the host",
                position,
                f"put {load} in front of it",
            )
        self._wait(task, [load])

    def _end(self) -> None:
        lane = self.schedule.lanes[self.row]
        unread = next((maker for maker, users in self.held if not users), None)
        if unread is not None:
            raise self._refusal(
                f"nothing uses the parameters that {unread} gathers",
                self._ran[unread],
                "take it out",
            )
        for own in self._unreduced.values():
            raise self._refusal(
                f"{own[-1]} comes after the last R of its stage",
                self._ran[own[-1]],
                f"put {own[-1].stage}R behind the last gradient",
            )
        lost = [t for t in lane if t.kind == OFFLOAD and t._replace(kind=LOAD) not in self._ran]
        if lost:
            raise self._refusal(
                f"what {lost[0]} has offloaded is never loaded",
                self._ran[lost[0]],
                f"put {lost[0]._replace(kind=LOAD)} in front of the backward",
            )

    def _refusal(self, what: str, position: int, help: str) -> ScheduleError:
        where = self.schedule.where(self.row, position)
        return ScheduleError(what, where=where, help=help, code="SHARDC-248")


def _place(task: Task) -> Place:
    return task.stage, task.replica
