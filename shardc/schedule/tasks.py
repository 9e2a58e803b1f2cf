"""The terms of a schedule: tasks, their needs, the buffers they hold, the lanes they run in.

The checker, the simulator, the planner and the runtime read `Schedule` and `TaskGraph` and
nothing else.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from shardc.errors import ScheduleError

PROLOGUE = "P"
FORWARD = "F"
BACKWARD = "B"
WEIGHT = "W"
WHOLE_BACKWARD = "X"
UPDATE = "U"
GATHER = "G"
REDUCE = "R"
OFFLOAD = "O"
LOAD = "L"

KINDS = {
    PROLOGUE: "once per step, before the microbatches",
    FORWARD: "forward of one microbatch",
    BACKWARD: "backward of one microbatch (input gradient only, if the stage also has W)",
    WEIGHT: "weight gradient of one microbatch, if it is split from B",
    WHOLE_BACKWARD: "B and W of one microbatch in one program, in a schedule that splits others",
    UPDATE: "once per step, after the microbatches (the optimizer)",
    GATHER: "gathers the parameters of a stage, which are sharded over data-parallel ranks",
    REDUCE: "reduce-scatters the gradients that a stage has summed up since its last R",
    OFFLOAD: "moves the activations of one microbatch to the host",
    LOAD: "brings them back",
}
ONCE_PER_STEP = (PROLOGUE, UPDATE)
LINKS = {GATHER: "mesh", REDUCE: "mesh", OFFLOAD: "to host", LOAD: "from host"}
"""The link of its device group that a move takes, while the group computes. A move begins when the
tasks in front of it in its lane and the moves on its link have ended."""

Amount = int | float | Fraction
"""Seconds, bytes or shares of a microbatch; rational numbers stay exact."""

_TEXT = re.compile(r"(\d+)([A-Z])(\d*)(?:\.(\d+))?('?)")


class Task(NamedTuple):
    """One program of one stage, run once; prints as `2F0`.

    Attributes:
        stage: 0 is the first of the pipeline. A device group may own several (chunks).
        kind: a key of `KINDS`.
        microbatch: 0-based. For P and U it is the round; round 0 is not printed: `2P`, `2U1`.
            For G and R it counts those of the stage.
        slice: part of the microbatch's sequence; slice 1 prints as `2F0.1`, slice 0 as `2F0`.
        replica: 1 is the copy of the stage in the pipeline that runs the other way: `2F0'`.
    """

    stage: int
    kind: str
    microbatch: int = 0
    slice: int = 0
    replica: int = 0

    def __str__(self) -> str:
        hidden = self.kind in ONCE_PER_STEP and self.microbatch == 0
        number = "" if hidden else str(self.microbatch)
        part = f".{self.slice}" if self.slice else ""
        return f"{self.stage}{self.kind}{number}{part}{"'" * self.replica}"

    def place(self, num_stages: int) -> int:
        """Index of its stage among all copies: stage s of replica r is r * num_stages + s."""
        return self.replica * num_stages + self.stage

    @staticmethod
    def parse(text: str) -> "Task":
        """Parses the output of `str`; ScheduleError (SHARDC-241) if `text` is not a task."""
        match = _TEXT.fullmatch(text)
        if match is None or match[2] not in KINDS or not (match[3] or match[2] in ONCE_PER_STEP):
            raise ScheduleError(
                f"'{text}' is not an action",
                help=f"an action is stage, one of {' '.join(KINDS)}, microbatch, and where there"
                " are any the slice and ' for the second replica, such as 2F0, 2U, 2F0.1 or 2F0'",
                code="SHARDC-241",
            )
        return Task(int(match[1]), match[2], int(match[3] or 0), int(match[4] or 0), len(match[5]))


class Need(NamedTuple):
    """A dependence of a task.

    Attributes:
        task: the one whose result is needed.
        num_bytes: sent if source and target differ; 0 if only the order counts.
        source: device group that makes the value.
        target: device group that reads it.
    """

    task: Task
    num_bytes: Amount
    source: int
    target: int


class Buffer(NamedTuple):
    """A value held between tasks, such as the activations that the backward reads.

    Attributes:
        group: device group that holds it.
        num_bytes: its size; in graphs made without a program, a share of one microbatch's
            activations on the group's whole share of the model.
        maker: the task that allocates it.
        users: the tasks that read it; it is freed after the last of them.
    """

    group: int
    num_bytes: Amount
    maker: Task
    users: tuple[Task, ...]


@dataclass(frozen=True)
class TaskGraph:
    """All the work of one step, without its order.

    Attributes:
        needs: the dependences of every task.
        groups: the device group of each (stage, replica).
        buffers: the values held, with makers and users.
    """

    needs: Mapping[Task, tuple[Need, ...]]
    groups: Mapping[tuple[int, int], int]
    buffers: tuple[Buffer, ...] = ()

    @property
    def tasks(self) -> Iterable[Task]:
        """Every task once, in the order in which the graph was built."""
        return self.needs.keys()

    @cached_property
    def num_groups(self) -> int:
        """Device groups, numbered from 0."""
        return max(self.groups.values(), default=-1) + 1

    @cached_property
    def made_by(self) -> dict[Task, list[int]]:
        """Positions of the buffers that each task allocates."""
        found: dict[Task, list[int]] = {}
        for i, buffer in enumerate(self.buffers):
            found.setdefault(buffer.maker, []).append(i)
        return found

    def group(self, task: Task) -> int:
        """The device group that runs `task`."""
        return self.groups[task.stage, task.replica]


@dataclass(frozen=True)
class Schedule:
    """The order in which each device group runs its tasks.

    Attributes:
        lanes: the tasks of each lane, in order.
        groups: the device group of each lane; () means that lane i is group i.
        columns: the column of each task in a hand-written grid, for error positions; () for
            generated schedules.
        rows: where each lane is written, such as `mine.grid:2`; () for generated schedules.
    """

    lanes: tuple[tuple[Task, ...], ...]
    groups: tuple[int, ...] = ()
    columns: tuple[tuple[int, ...], ...] = ()
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.groups:
            object.__setattr__(self, "groups", tuple(range(len(self.lanes))))
        assert len(set(self.groups)) == len(self.lanes), "one lane per device group"

    @cached_property
    def cells(self) -> dict[Task, tuple[int, int]]:
        """Lane and position of each task (the last one of a repeated task)."""
        return {
            task: (row, column)
            for row, lane in enumerate(self.lanes)
            for column, task in enumerate(lane)
        }

    def where(self, row: int, position: int) -> str:
        """The cell of a task, for an error: rows are device groups, columns count from 0."""
        column = self.columns[row][position] if self.columns else position
        task = self.lanes[row][position]
        return f"{self._row(row)}, column {column} of the grid ({task})"

    def where_row(self, row: int) -> str:
        """A lane, for an error."""
        return f"{self._row(row)} of the grid"

    def _row(self, row: int) -> str:
        return f"{f'{self.rows[row]}, ' if self.rows else ''}row {self.groups[row]}"

    def to_json(self) -> dict[str, Any]:
        """Plain data for `from_json`: printed lanes and their device groups."""
        return {"lanes": [list(lane) for lane in print_lanes(self)], "groups": list(self.groups)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Schedule":
        """Inverse of `to_json`; ScheduleError (SHARDC-241), a word is not an action."""
        return Schedule(parse_lanes(data["lanes"]), tuple(data.get("groups", ())))


def common_scale(amounts: Iterable[Amount]) -> int:
    """A factor that makes all amounts integers, so that they add and compare as integers: much
    faster than fractions, and exact. 1 if one of them is a float."""
    distinct = set(amounts)
    if any(isinstance(amount, float) for amount in distinct):
        return 1
    return math.lcm(*(Fraction(amount).denominator for amount in distinct))


def scaled(amount: Amount, scale: int) -> Amount:
    """`amount` times the scale, as an integer; with scale 1, unchanged."""
    return amount if isinstance(amount, float) or scale == 1 else int(amount * scale)


def all_scaled(amounts: Sequence[Amount]) -> tuple[list[Amount], int]:
    """The amounts times their common scale, and the scale. An object that occurs often is scaled
    once; it is recognised by identity, because hashing a fraction is slow."""
    distinct = {id(amount): amount for amount in amounts}
    scale = common_scale(distinct.values())
    whole = {key: scaled(amount, scale) for key, amount in distinct.items()}
    return [whole[id(amount)] for amount in amounts], scale


def parse_lanes(texts: Iterable[Sequence[str]]) -> tuple[tuple[Task, ...], ...]:
    """Parses lanes of printed tasks; ScheduleError (SHARDC-241)."""
    return tuple(tuple(Task.parse(text) for text in lane) for lane in texts)


def print_lanes(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """The printed tasks of each lane."""
    return tuple(tuple(str(task) for task in lane) for lane in schedule.lanes)
