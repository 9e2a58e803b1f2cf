"""Hand-written schedules, read cell by cell."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from shardc.errors import ScheduleError
from shardc.files import BAD_DATA, read_data
from shardc.schedule.check import check
from shardc.schedule.family import Costs, Lanes, Planned, ScheduleFamily, graph_of
from shardc.schedule.shown.grid import parse_grid
from shardc.schedule.tasks import FORWARD, LINKS, ONCE_PER_STEP, Schedule
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
        about="written in a file",
    )


def planned_by_hand(schedule: Schedule, base: Work) -> Planned:
    """A hand-written schedule, with the graph of its step.

    Stages are placed where the grid has their tasks; it also determines their number.

    Raises:
        ScheduleError: SHARDC-242 the grid has another number of rows; SHARDC-243 a stage is on
            two groups, or on none.
    """
    if sorted(schedule.groups) != list(range(base.num_groups)):
        raise ScheduleError(
            f"the grid has rows {', '.join(map(str, schedule.groups))}, but there are"
            f" {base.num_groups} devices",
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
    missing = [(s, r) for r in range(replicas) for s in range(num_stages) if (s, r) not in groups]
    if missing or num_stages % base.num_groups:
        what = f"stage {missing[0][0]}" if missing else f"{num_stages} stages for {base.num_groups}"
        raise ScheduleError(
            f"the grid does not give every device the same number of stages: {what}",
            help="write the actions of every stage, with the same number of stages per device",
            code="SHARDC-243",
        )
    work = replace(
        base,
        chunks=num_stages // base.num_groups,
        replicas=replicas,
        slices=max(task.slice for lane in schedule.lanes for task in lane) + 1,
        split_backward="W" in kinds,
        prologue="P" in kinds,
        update_rounds=int("U" in kinds),
    )
    placement = [[groups[s, r] for s in range(num_stages)] for r in range(replicas)]
    return Planned(work, schedule, graph_of(schedule, work, placement))


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
