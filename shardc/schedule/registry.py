"""The schedules by name: the families of `shardc.schedule.families`, and user-defined ones."""

import uuid
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from shardc.errors import ScheduleError
from shardc.schedule.families import built_in
from shardc.schedule.families.optimal import best_order_on
from shardc.schedule.family import Costs, Order, Planned, ScheduleFamily
from shardc.schedule.placement import both_ways, looped, zigzag
from shardc.schedule.tasks import LOAD, OFFLOAD
from shardc.schedule.work import Work
from shardc.schedule.written import checked_order, family_of_file, planned_by_hand, read_schedule

AUTO = (
    "eager-1f1b",
    "1f1b",
)  # with which schedule="auto" searches for the pipeline it then improves
PLACES = {"looped": looped, "zigzag": zigzag, "both-ways": both_ways}

_own: dict[str, ScheduleFamily] = {}
_registered: dict[str, str] = {}  # name -> a number unique to the registration


@cache
def best_orders() -> dict[str, ScheduleFamily]:
    """For each built-in family that does not search itself, by its name: the best order on its
    placement, called `optimal:NAME`."""
    return {
        name: best_order_on(family)
        for name, family in built_in().items()
        if not (family.any_placement or family.moves)
    }


def names() -> list[str]:
    """All schedules, user-defined ones last."""
    return [*built_in(), *(name for name in _own if name not in built_in())]


def _is_file(name: str) -> bool:
    return name not in names() and ("." in name or Path(name).is_file())


def identity(name: str) -> str:
    """Distinguishes schedules of the same name: the text of a file, or the registration of a
    function."""
    if _is_file(name):
        return Path(name).read_text(encoding="utf-8")
    return _registered.get(name, "")


def schedule_named(name: str) -> ScheduleFamily:
    """The family called `name`, or that of the schedule in the file `name`.

    Raises:
        ScheduleError: SHARDC-240 there is none; for a file as in `shardc.schedule.written`.
    """
    if _is_file(name):
        return family_of_file(name)
    found = _own.get(name) or built_in().get(name)
    if found is None:
        found = next((each for each in best_orders().values() if each.name == name), None)
    if found is None:
        meant = get_close_matches(name, names(), n=1)
        raise ScheduleError(
            f"there is no schedule '{name}'",
            help=f"{f"did you mean '{meant[0]}'? " if meant else ''}the schedules are "
            + ", ".join(names()),
            code="SHARDC-240",
        )
    return found


def schedule_to_run(name: str, *, gathers: bool = False) -> ScheduleFamily:
    """`schedule_named`, of a schedule that shardc executes.

    Args:
        gathers: the plan has parameters that its actions G gather.
    Raises:
        ScheduleError: also SHARDC-249, it offloads activations, or it gathers parameters and the
            plan has none to gather.
    """
    family = schedule_named(name)
    if family.moves & {OFFLOAD, LOAD}:
        raise ScheduleError(
            f"'{name}' offloads activations (O, L), which is checked and simulated, not executed",
            help=f"shardc simulate --schedule {name} shows what it would take; to run, take another"
            " schedule, such as grouped-1f1b",
            code="SHARDC-249",
        )
    if family.moves and not gathers:
        raise ScheduleError(
            f"'{name}' gathers parameters (G, R), and the plan does not say over which axis they"
            " lie sharded",
            help='run it by a hand-written plan with "gather": "data", or take out G and R',
            code="SHARDC-249",
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
    """Registers a user-defined schedule under `name`, in this process.

    It runs where it is requested: `schedule="auto"` weighs built-in families only.

    Args:
        order: (work, costs) -> per device group its `Task`s in order, F and B of every microbatch
            (and W with `split_backward`). shardc adds P and U. Every schedule that it
            returns is checked (`checked_order`).
        chunks: stages per device group.
        replicas: 2 if each stage is on two groups (`place="both-ways"`).
        slices: it splits microbatches into token slices.
        place: "looped": stage s on group s mod p; "zigzag": there and back again; "both-ways": a
            zigzag from each end.
    Raises:
        ScheduleError: SHARDC-242, a built-in schedule has this name, or an option is unknown.
    """
    called: object = name
    makes: object = order
    if not isinstance(called, str) or not callable(makes):
        raise ScheduleError(
            f"{called!r} and {makes!r} are not a name and a function",
            help="register_schedule('mine', order), where order(work, costs) returns the tasks",
            code="SHARDC-242",
        )
    if name in built_in() or name == "auto":
        raise ScheduleError(
            f"'{name}' is a built-in schedule",
            help="give another name",
            code="SHARDC-242",
        )
    counts = all(isinstance(count, int) for count in (chunks, replicas))
    where: object = place
    known = isinstance(where, str) and where in PLACES
    if not (counts and known and replicas in (1, 2) and chunks >= 1):
        raise ScheduleError(
            f"a schedule cannot have place={place!r}, replicas={replicas!r}, chunks={chunks!r}",
            help=f"place is one of {', '.join(PLACES)}; replicas 1 or 2; chunks 1 or more",
            code="SHARDC-242",
        )
    _own[name] = ScheduleFamily(
        name,
        checked_order(name, order, PLACES[place]),
        split_backward=split_backward,
        chunks=(chunks,),
        replicas=replicas,
        slices=slices,
        place=PLACES[place],
        about="registered by the user",
    )
    _registered[name] = uuid.uuid4().hex
    return _own[name]


def plan_schedule(
    name: str, base: Work, costs: Costs, chunks: int | None = None, slices: int | None = None
) -> Planned:
    """The schedule called `name`, or the one in the file `name`, for `base`.

    A file holds a grid (`parse_grid`) or, ending in .json, the data of `Schedule.to_json`. If it
    has a W, the backward is split; if it has P or U, they are part of the step.

    Raises:
        ScheduleError: SHARDC-240 there is none; SHARDC-241 the file cannot be read; SHARDC-242 the
            schedule does not support the counts; SHARDC-243 a stage is on two groups.
    """
    if not _is_file(name):
        return schedule_named(name).plan(base, costs, chunks, slices)
    return planned_by_hand(read_schedule(Path(name)), base)
