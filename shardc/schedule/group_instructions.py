"""The instructions of each device group (run, send, receive, free), and their checker.

A lane only gives the order of tasks. Its instructions also say when each value is sent and
received and when each buffer is freed: everything a process needs to play its part without
consulting the others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardc.errors import ScheduleError
from shardc.schedule.tasks import Schedule, Task, TaskGraph


class Run(NamedTuple):
    """Runs a task."""

    task: Task

    def __str__(self) -> str:
        return str(self.task)


class Send(NamedTuple):
    """Sends the result of `task` to device group `target`; completes when it is received."""

    task: Task
    target: int

    def __str__(self) -> str:
        return f"send {self.task} to {self.target}"


class Receive(NamedTuple):
    """Receives the result of `task` from device group `source`."""

    task: Task
    source: int

    def __str__(self) -> str:
        return f"receive {self.task} from {self.source}"


class Free(NamedTuple):
    """Frees the buffer at a position of the graph's buffers."""

    buffer: int

    def __str__(self) -> str:
        return f"free buffer {self.buffer}"


Instruction = Run | Send | Receive | Free
Instructions = Mapping[int, Sequence[Instruction]]
"""By device group, its instructions in order."""


def instructions_of(
    schedule: Schedule, graph: TaskGraph, order: Sequence[Task]
) -> dict[int, list[Instruction]]:
    """The instructions of every device group of a schedule that terminates.

    Walks all tasks in one order that agrees with every lane, and inserts each send and its receive
    as a pair as soon as the value exists. Every group's instructions are thus part of one
    sequence, so blocking sends cannot deadlock.

    Args:
        order: all tasks, each after its needs and in its lane's order (`run_order`).
    """
    program: dict[int, list[Instruction]] = {group: [] for group in schedule.groups}
    readers: dict[Task, list[int]] = {}
    for task in order:
        for need in graph.needs[task]:
            targets = readers.setdefault(need.task, [])
            if need.source != need.target and need.target not in targets:
                targets.append(need.target)
    at = {task: i for i, task in enumerate(order)}
    dying: dict[Task, list[int]] = {}
    for i, buffer in enumerate(graph.buffers):
        last = max(buffer.users or (buffer.maker,), key=at.__getitem__)
        dying.setdefault(last, []).append(i)
    for task in order:
        group = graph.group(task)
        program[group].append(Run(task))
        program[group] += map(Free, dying.get(task, ()))
        for target in readers.get(task, ()):
            program[group].append(Send(task, target))
            program[target].append(Receive(task, group))
    return program


def check_instructions(program: Instructions, graph: TaskGraph) -> None:
    """Raises unless `program` runs `graph` to its end under blocking sends and frees its buffers.

    Raises:
        ScheduleError: SHARDC-243 a task is not run once, by its own group; SHARDC-244 a task runs
            before one it needs, or groups wait for each other; SHARDC-246 a buffer is freed too
            early, twice or never; SHARDC-247 a value is sent that nobody receives, or read without
            having been received.
    """
    _check_runs(program, graph)
    state = _State(program, graph)
    while state.step():
        pass
    state.check_end()


def _check_runs(program: Instructions, graph: TaskGraph) -> None:
    """ScheduleError (SHARDC-243) unless every task runs once, on the group of its stage."""
    runs = Counter(
        (each.task, group)
        for group, instructions in program.items()
        for each in instructions
        if isinstance(each, Run)
    )
    wanted = Counter((task, graph.group(task)) for task in graph.tasks)
    for key in sorted(runs | wanted):
        if runs[key] != wanted[key]:
            missing, twice = wanted[key] > runs[key], bool(wanted[key])
            task, group = key
            said = "does not run" if missing else "runs twice:" if twice else "must not run"
            raise ScheduleError(
                f"device {group} {said} {task}",
                where=f"row {group}",
                help="a step runs each of its actions once, on the device of its stage",
                code="SHARDC-243",
            )


class _State:
    """An execution of instructions, one rendezvous at a time."""

    def __init__(self, program: Instructions, graph: TaskGraph) -> None:
        self.program, self.graph = program, graph
        self.at = dict.fromkeys(program, 0)
        self.present: set[tuple[Task, int]] = set()  # (result, group that holds it)
        self.live: set[int] = set()
        self.freed: set[int] = set()
        self.used_by: dict[Task, list[int]] = {}
        for i, buffer in enumerate(graph.buffers):
            for user in buffer.users:
                self.used_by.setdefault(user, []).append(i)

    def step(self) -> bool:
        """Advances every group as far as possible; whether anything happened."""
        before = sum(self.at.values())
        for group, instructions in self.program.items():
            while self.at[group] < len(instructions):
                instruction = instructions[self.at[group]]
                match instruction:
                    case Run(task):
                        self._run(group, task)
                    case Free(buffer):
                        self._free(group, buffer)
                    case Send(task, target):
                        if self._next(target) != Receive(task, group):
                            break
                        self._check_made(group, task)
                        self.present.add((task, target))
                        self._fill(target, task)
                        self.at[target] += 1
                    case Receive():
                        break  # the sender advances both
                self.at[group] += 1
        return sum(self.at.values()) > before

    def check_end(self) -> None:
        stuck = [g for g, instructions in self.program.items() if self.at[g] < len(instructions)]
        if stuck:
            said = [f"device {g} at '{self._next(g)}'" for g in stuck[:4]]
            alone = next((g for g in stuck if not self._has_partner(g)), None)
            at = stuck[0] if alone is None else alone
            partner = "receive" if isinstance(self._next(at), Send) else "send"
            raise ScheduleError(
                "the device groups wait for each other: " + ", ".join(said),
                where=self._where(at),
                help="bring sends and receives into the same order on both sides"
                if alone is None
                else f"add the {partner} that device {alone} waits for",
                code="SHARDC-244" if alone is None else "SHARDC-247",
            )
        if self.live:
            buffer = self.graph.buffers[min(self.live)]
            raise ScheduleError(
                f"the buffer that {buffer.maker} makes on device {buffer.group} is never freed",
                help=f"free it after {', '.join(map(str, buffer.users)) or buffer.maker}",
                code="SHARDC-246",
            )

    def _run(self, group: int, task: Task) -> None:
        for need in self.graph.needs[task]:
            if (need.task, group) not in self.present:
                raise ScheduleError(
                    f"{task} reads the result of {need.task}, which is not on device {group} yet",
                    where=self._where(group),
                    help=f"receive it from device {need.source} first"
                    if need.source != group
                    else f"run {need.task} before",
                    code="SHARDC-247" if need.source != group else "SHARDC-244",
                )
        for buffer in self.used_by.get(task, ()):
            if buffer in self.freed:
                self._refuse_free(group, buffer, f"is freed before {task} reads it")
        self.present.add((task, group))
        self._fill(group, task)

    def _fill(self, group: int, task: Task) -> None:
        """Marks the buffers of a group that hold the result of a task as live."""
        made = self.graph.made_by.get(task, ())
        self.live.update(i for i in made if self.graph.buffers[i].group == group)

    def _free(self, group: int, buffer: int) -> None:
        if buffer in self.freed:
            self._refuse_free(group, buffer, "is freed twice")
        if buffer not in self.live:
            self._refuse_free(group, buffer, "is freed before it is made")
        for user in self.graph.buffers[buffer].users:
            if (user, group) not in self.present:
                self._refuse_free(group, buffer, f"is freed before {user} reads it")
        self.live.remove(buffer)
        self.freed.add(buffer)

    def _check_made(self, group: int, task: Task) -> None:
        if (task, group) not in self.present:
            raise ScheduleError(
                f"device {group} sends the result of {task}, which it does not hold",
                where=self._where(group),
                help=f"run {task} before",
                code="SHARDC-247",
            )

    def _has_partner(self, group: int) -> bool:
        """Whether the partner of a stuck group's send or receive is still to come."""
        match self._next(group):
            case Send(task, target):
                return Receive(task, group) in self._left(target)
            case Receive(task, source):
                return Send(task, group) in self._left(source)
            case _:
                return True

    def _left(self, group: int) -> Sequence[Instruction]:
        return self.program.get(group, ())[self.at.get(group, 0) :]

    def _next(self, group: int) -> Instruction | None:
        instructions = self.program.get(group, ())
        at = self.at.get(group, 0)
        return instructions[at] if at < len(instructions) else None

    def _refuse_free(self, group: int, buffer: int, how: str) -> None:
        made = self.graph.buffers[buffer]
        raise ScheduleError(
            f"the buffer that {made.maker} makes on device {group} {how}",
            where=self._where(group),
            help=f"free it once, after {', '.join(map(str, made.users)) or made.maker}",
            code="SHARDC-246",
        )

    def _where(self, group: int) -> str:
        return f"row {group}, instruction {self.at[group]} ({self._next(group)})"
