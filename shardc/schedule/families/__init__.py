"""One file per mechanism; each lists its `FAMILIES`."""

import importlib
import pkgutil
from functools import cache

from shardc.schedule.family import ScheduleFamily


@cache
def built_in() -> dict[str, ScheduleFamily]:
    """The built-in families, by name."""
    found: dict[str, ScheduleFamily] = {}
    for module in pkgutil.iter_modules(__path__, __name__ + "."):
        for family in importlib.import_module(module.name).FAMILIES:
            assert family.name not in found, f"two families are called {family.name}"
            found[family.name] = family
    return found
