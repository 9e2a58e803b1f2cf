"""Hand-written schedules, files and functions, checked cell by cell."""

import json
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from shardc.errors import ScheduleError, ShardcError
from shardc.files import BAD_DATA, read_data
from shardc.schedule.check import check
from shardc.schedule.family import Costs, Lanes, Order, Planned, ScheduleFamily, graph_of
from shardc.schedule.shown.grid import parse_grid
from shardc.schedule.tasks import (
    FORWARD,
    LINKS,
    ONCE_PER_STEP,
    WEIGHT,
    WHOLE_BACKWARD,
    Schedule,
    Task,
)
from shardc.schedule.work import Placement, Work


def family_of_file(name: str) -> ScheduleFamily:
    """The schedule in a file, as a family that supports only its own counts.

    P and U are added as the program needs them, whether or not the grid has them.

    Raises:
        ScheduleError: SHARDC-241 it cannot be read; 243, 244, 246 and 247 as in `check`, with the
            cell of the file.
    """
    path = Path(name)
    try:
        state = path.stat()
    except OSError:
        return _family(name, read_schedule(path))  # raises, with the reason
    return _family_read(name, state.st_mtime_ns, state.st_size)


@cache
def _family_read(name: str, changed_ns: int, num_bytes: int) -> ScheduleFamily:
    """The family in a file; cached, because planning asks for it at every stage."""
    return _family(name, read_schedule(Path(name)))


def _family(name: str, written: Schedule) -> ScheduleFamily:
    p = len(written.lanes)
    forwards = (t.microbatch for lane in written.lanes for t in lane if t.kind == FORWARD)
    m = 1 + max(forwards, default=0)
    planned = planned_by_hand(written, Work(p, m, prologue=False, update_rounds=0))
    check(planned.schedule, planned.graph)
    own = planned.work
    placement = tuple(
        tuple(planned.graph.groups[stage, replica] for stage in range(own.num_stages))
        for replica in range(own.replicas)
    )

    def refuses(work: Work) -> tuple[str, str] | None:
        if (work.num_groups, work.num_microbatches) == (p, m):
            return None
        return (
            f"has {p} rows and {m} microbatches, so not {work.num_groups} stages and"
            f" {work.num_microbatches} microbatches",
            f"ask for stages={p} and microbatches={m}, or write another grid",
        )

    def fitting(work: Work, *, any_count: bool = False) -> None:
        wanted = replace(work, num_microbatches=m) if any_count else work
        refusal = refuses(wanted)
        if refusal is not None:
            what, help = refusal
            raise ScheduleError(f"'{name}' {what}", help=help, code="SHARDC-242")

    def order(work: Work, costs: Costs) -> Lanes:
        fitting(work)
        return [
            [
                task
                for task in written.lanes[written.groups.index(g)]
                if task.kind not in ONCE_PER_STEP
            ]
            for g in range(p)
        ]

    def place(work: Work) -> Placement:
        fitting(work, any_count=True)
        return placement

    return ScheduleFamily(
        name,
        order,
        split_backward=own.split_backward,
        chunks=(own.chunks,),
        replicas=own.replicas,
        slices=own.slices > 1,
        place=place,
        refuses=refuses,
        moves=frozenset(task.kind for lane in written.lanes for task in lane if task.kind in LINKS),
        only=(p, m),
        about="written in a file",
    )


def checked_order(name: str, order: Order, place: Callable[[Work], Placement]) -> Order:
    """`order`, a function of the user's, with every schedule that it returns checked.

    The order that it becomes raises ScheduleError: SHARDC-241 the function fails, or returns no
    tasks; SHARDC-242 it does not return one lane per device group; 243, 244, 246, 247 and 248 as in
    `check` and `graph_of`.
    """

    def checked(work: Work, costs: Costs) -> Lanes:
        lanes = _called(name, order, work, costs)
        schedule = Schedule(lanes, rows=(f"schedule '{name}'",) * len(lanes))
        if len(lanes) != work.num_groups:
            raise ScheduleError(
                f"the function of schedule '{name}' returns {len(lanes)} lanes for"
                f" {work.num_groups} device groups",
                help="return a list of tasks for each of range(work.num_groups)",
                code="SHARDC-242",
            )
        wrong = ((r, c, t) for r, lane in enumerate(lanes) for c, t in enumerate(lane))
        for row, column, task in wrong:
            if not isinstance(task, Task):
                raise ScheduleError(
                    f"{task!r} is not a Task",
                    where=schedule.where(row, column),
                    help="return Task(stage, kind, microbatch), such as Task(2, 'F', 0)",
                    code="SHARDC-241",
                )
        check(schedule, graph_of(schedule, work, place(work)))
        return lanes

    return checked


def _called(name: str, order: Order, work: Work, costs: Costs) -> tuple[tuple[Task, ...], ...]:
    """What the user's function returns; ScheduleError (SHARDC-241) if it raises or is no lanes."""
    try:
        return tuple(tuple(lane) for lane in order(work, costs))
    except ShardcError:
        raise
    except Exception as error:  # the user's code may raise anything; it is told where
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise ScheduleError(
            f"the function of schedule '{name}' makes no lanes of {work.num_groups} device groups"
            f" and {work.num_microbatches} microbatches: {type(error).__name__}: {error}",
            where=None if at.filename == __file__ else f"{at.filename}:{at.lineno} ({at.name})",
            help="return for each device group its tasks in order: a list of lists of Task",
            code="SHARDC-241",
        ) from error


def planned_by_hand(schedule: Schedule, base: Work) -> Planned:
    """A hand-written schedule, with the graph of its step.

    Stages are placed where the grid has their tasks; it also determines their number.

    Raises:
        ScheduleError: SHARDC-242 the grid has another number of rows; SHARDC-243 a stage is on
            two groups, or on none.
    """
    if sorted(schedule.groups) != list(range(base.num_groups)):
        rows = ", ".join(map(str, schedule.groups))
        raise ScheduleError(
            f"the grid has {f'rows {rows}' if rows else 'no rows'}, but there are"
            f" {base.num_groups} devices",
            where=schedule.where_row(len(schedule.lanes) - 1) if rows else None,
            help=f"write one row for each of 0 to {base.num_groups - 1}, or give another --stages",
            code="SHARDC-242",
        )
    groups: dict[tuple[int, int], int] = {}
    kinds = set()
    for row, lane in enumerate(schedule.lanes):
        for position, task in enumerate(lane):
            kinds.add(task.kind)
            home = groups.setdefault((task.stage, task.replica), schedule.groups[row])
            if home != schedule.groups[row]:
                raise ScheduleError(
                    f"{task} is in row {schedule.groups[row]}, but other actions of its stage are"
                    f" in row {home}",
                    where=schedule.where(row, position),
                    help="give all actions of a stage to one device",
                    code="SHARDC-243",
                )
    replicas = max((r for _, r in groups), default=0) + 1
    num_stages = max((s for s, _ in groups), default=0) + 1
    cells = ((s, r) for r in range(replicas) for s in range(num_stages))
    missing = next((each for each in cells if each not in groups), None)
    if missing is not None:
        raise ScheduleError(
            f"the grid has no action of stage {missing[0]}{"'" * missing[1]}",
            where=_last_stage(schedule, missing[1]),
            help="write the actions of every stage, numbered from 0, of both copies if there are"
            " two",
            code="SHARDC-243",
        )
    own = Counter(groups.values())
    for group in range(base.num_groups):
        if own[group] * base.num_groups != len(groups):
            raise ScheduleError(
                f"device {group} has {own[group]} of the grid's {len(groups)} stages, but"
                f" {base.num_groups} devices share them evenly",
                where=schedule.where_row(schedule.groups.index(group)),
                help="give every device the same number of stages, or another --stages",
                code="SHARDC-243",
            )
    work = replace(
        base,
        chunks=num_stages // base.num_groups,
        replicas=replicas,
        slices=max(task.slice for lane in schedule.lanes for task in lane) + 1,
        split_backward=bool(kinds & {WEIGHT, WHOLE_BACKWARD}),
        prologue="P" in kinds,
        update_rounds=int("U" in kinds),
    )
    placement = [[groups[s, r] for s in range(num_stages)] for r in range(replicas)]
    return Planned(work, schedule, graph_of(schedule, work, placement))


def _last_stage(schedule: Schedule, replica: int) -> str:
    """A cell of the last stage of a copy; the first row if there is none."""
    copy = [task for task in schedule.cells if task.replica == replica]
    if not copy:
        return schedule.where_row(0)
    return schedule.where(*schedule.cells[max(copy, key=lambda task: task.stage)])


def read_schedule(path: Path) -> Schedule:
    """Reads a file: a grid or, ending in .json, the data of `Schedule.to_json`.

    Raises:
        ScheduleError: SHARDC-241, it cannot be read.
    """
    try:
        text = read_data(path).decode()
        if path.suffix != ".json":
            return parse_grid(text, str(path))
        found = Schedule.from_json(json.loads(text))
        return replace(found, rows=(str(path),) * len(found.lanes))
    except (*BAD_DATA, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScheduleError(
            f"the schedule cannot be read: {error}",
            where=path,
            help='give a file with a grid, or with JSON such as {"lanes": [["0F0", "0B0"]]}',
            code="SHARDC-241",
        ) from error
