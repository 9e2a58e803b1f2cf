"""The schedules by name: the families of `shardc.schedule.families`, and the user's own."""

import importlib
import pkgutil
from functools import cache

from shardc.errors import ScheduleError
from shardc.schedule import families
from shardc.schedule.family import Order, ScheduleFamily
from shardc.schedule.placement import both_ways, looped, zigzag
from shardc.schedule.tasks import Schedule
from shardc.schedule.work import Work

EXECUTED = ("gpipe", "1f1b", "eager-1f1b")
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
            help=f"use schedule=\"auto\", {', '.join(can)}; `shardc simulate --schedule {name}`"
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


def generate(name: str, work: Work) -> Schedule:
    """The schedule called `name` of `work`; ScheduleError (SHARDC-240)."""
    return schedule_named(name).generate(work)
