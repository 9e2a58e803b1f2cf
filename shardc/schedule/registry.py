"""The schedules by name: the families of `shardc.schedule.families`, and the user's own."""

import importlib
import json
import pkgutil
from dataclasses import replace
from functools import cache
from pathlib import Path

from shardc.errors import ScheduleError
from shardc.files import BAD_DATA, read_data
from shardc.schedule import families
from shardc.schedule.family import Costs, Order, Planned, ScheduleFamily, graph_of
from shardc.schedule.grid import parse_grid
from shardc.schedule.placement import both_ways, looped, zigzag
from shardc.schedule.tasks import Schedule
from shardc.schedule.work import Work

AUTO = ("gpipe", "1f1b")  # what schedule="auto" chooses from
PLACES = {"looped": looped, "zigzag": zigzag, "both-ways": both_ways}

_own: dict[str, ScheduleFamily] = {}


@cache
def built_in() -> dict[str, ScheduleFamily]:
    """The families that come with shardc, by name."""
    found: dict[str, ScheduleFamily] = {}
    for module in pkgutil.iter_modules(families.__path__, families.__name__ + "."):
        for family in importlib.import_module(module.name).FAMILIES:
            assert family.name not in found, f"two families are called {family.name}"
            found[family.name] = family
    return found


def names() -> list[str]:
    """Every schedule there is, the user's own at the end."""
    return [*built_in(), *(name for name in _own if name not in built_in())]


def schedule_named(name: str) -> ScheduleFamily:
    """The family called `name`; ScheduleError (SHARDC-240) if there is none."""
    found = _own.get(name) or built_in().get(name)
    if found is None:
        raise ScheduleError(
            f"there is no schedule '{name}'",
            help="the schedules are " + ", ".join(names()),
            code="SHARDC-240",
        )
    return found


def executable_schedule(name: str) -> ScheduleFamily:
    """The family called `name`, if programs can be made for it.

    Raises:
        ScheduleError: SHARDC-240 there is none; SHARDC-248 it can only be simulated as yet.
    """
    family = schedule_named(name)
    if not family.is_executable:
        can = [known for known in names() if schedule_named(known).is_executable]
        raise ScheduleError(
            f"'{name}' can be simulated, but not executed yet",
            help=f'use schedule="auto", {", ".join(can)}; `shardc simulate --schedule {name}`'
            " shows what it would take",
            code="SHARDC-248",
        )
    return family


def register_schedule(
    name: str,
    order: Order,
    *,
    split_backward: bool = False,
    chunks: int = 1,
    replicas: int = 1,
    slices: bool = False,
    place: str = "looped",
) -> ScheduleFamily:
    """Makes a schedule of the caller's own known by `name`, in this process.

    Args:
        order: (work, costs) -> per device group its `Task`s in order, F and B of every microbatch
            (and W where `split_backward`). P and U are put around them. Every schedule that it
            gives is checked before it is simulated or run.
        chunks: stages per device group.
        replicas: 2 where each stage stands on two groups (`place="both-ways"`).
        slices: it cuts microbatches into token slices.
        place: "looped": stage s on group s mod p; "zigzag": there and back again; "both-ways": a
            zigzag from either end.
    Raises:
        ScheduleError: SHARDC-242, the name is taken by one of shardc's own or an option is unknown.
    """
    if name in built_in() or name == "auto":
        raise ScheduleError(
            f"'{name}' is the name of a schedule of shardc's own",
            help="give another name",
            code="SHARDC-242",
        )
    if place not in PLACES or replicas not in (1, 2) or chunks < 1:
        raise ScheduleError(
            f"a schedule cannot have place={place!r}, replicas={replicas}, chunks={chunks}",
            help=f"place is one of {', '.join(PLACES)}; replicas 1 or 2; chunks 1 or more",
            code="SHARDC-242",
        )
    _own[name] = ScheduleFamily(
        name,
        order,
        split_backward=split_backward,
        chunks=(chunks,),
        replicas=replicas,
        slices=slices,
        place=PLACES[place],
        about="registered by the user",
    )
    return _own[name]


def plan_schedule(
    name: str, base: Work, costs: Costs, chunks: int | None = None, slices: int | None = None
) -> Planned:
    """The schedule called `name`, or the one written in the file `name`, for `base`.

    A file holds a grid (`parse_grid`) or, ending in .json, what `Schedule.to_json` gives. Where it
    has a W the backward is split, where it has P or U they are part of the step.

    Raises:
        ScheduleError: SHARDC-240 there is none; SHARDC-241 the file cannot be read; SHARDC-242 the
            schedule cannot take such counts; SHARDC-243 a stage stands on two groups.
    """
    path = Path(name)
    if name in names() or not ("." in name or path.is_file()):
        return schedule_named(name).plan(base, costs, chunks, slices)
    return planned_by_hand(_read(path), base)


def planned_by_hand(schedule: Schedule, base: Work) -> Planned:
    """A schedule written by hand, with the graph of the step that it is for.

    Its stages stand where their tasks do; their number is what the grid shows.

    Raises:
        ScheduleError: SHARDC-242 the grid has no such number of rows; SHARDC-243 a stage stands on
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
                    f"{task} stands in row {schedule.groups[row]}, but other actions of its stage"
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
            f"the grid does not give every device as many stages: {what}",
            help="write the actions of every stage, and as many stages for each device",
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


def _read(path: Path) -> Schedule:
    try:
        text = read_data(path).decode()
        if path.suffix != ".json":
            return parse_grid(text, str(path))
        return Schedule.from_json(json.loads(text))
    except (*BAD_DATA, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScheduleError(
            f"the schedule cannot be read: {error}",
            where=path,
            help='give a file with a grid, or with JSON such as {"lanes": [["0F0", "0B0"]]}',
            code="SHARDC-241",
        ) from error


def generate(name: str, work: Work) -> Schedule:
    """The schedule called `name` of `work`; ScheduleError (SHARDC-240)."""
    return schedule_named(name).generate(work)
