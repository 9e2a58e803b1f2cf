"""One file per mechanism; each lists its `FAMILIES`.

A new schedule is a `ScheduleFamily(name, order, ..)` in the `FAMILIES` of a file here: `order`
lists the tasks of each device group, and the fields say what it needs (split backward, chunks,
copies, slices) and how many microbatches it holds. The registry finds it, `two_bp.py` derives
a form of it with a split backward if it has none, and `schedule="auto"` weighs it. It also has a
row and a picture in docs/schedules.md (tools/draw_schedules.py).
"""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from shardc.schedule.family import ScheduleFamily


def families_of_files(*, but: str = "") -> Iterator[ScheduleFamily]:
    """The families of every file, in the order of the files' names.

    Args:
        but: a module whose own families are left out, because it derives them from the others.
    """
    for module in pkgutil.iter_modules(__path__, __name__ + "."):
        if module.name != but:
            yield from importlib.import_module(module.name).FAMILIES


@cache
def built_in() -> dict[str, ScheduleFamily]:
    """The built-in families, by name."""
    found: dict[str, ScheduleFamily] = {}
    for family in families_of_files():
        assert family.name not in found, f"two families are called {family.name}"
        found[family.name] = family
    return found
