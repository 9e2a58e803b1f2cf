"""The layout of values on the devices of a mesh."""

import re
from collections.abc import Sequence

import msgspec

from shardc.errors import PlanError

# An axis of size 1 on every JAX mesh that shardc makes. It marks arrays placed by a plan, or by JAX
# computing from such arrays, as opposed to arrays placed by the user.
OWN_AXIS = "shardc"
STAGE_AXIS = "stage"  # of the mesh of an array whose rows belong to several stages
MOST_RANGES = 6  # of numbers in a folded name
_NUMBER = re.compile(r"\d+")
_ROWS = re.compile(r", rows [\d:]+$")
_KEYS = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.?([A-Za-z_]\w*)")


class TensorSharding(msgspec.Struct, frozen=True):
    """The sharding of one tensor on a mesh.

    Attributes:
        dims: for each tensor dim the mesh axes that split it, major to minor; () = not split.
        unreduced: mesh axes over which the devices hold partial sums of the value.
    """

    dims: tuple[tuple[str, ...], ...]
    unreduced: tuple[str, ...] = ()

    @staticmethod
    def replicated(rank: int) -> "TensorSharding":
        """Every device holds the whole tensor."""
        return TensorSharding(((),) * rank)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split dims, in order of the dims."""
        return tuple(axis for dim in self.dims for axis in dim)


class Mesh(msgspec.Struct, frozen=True):
    """Named axes over some devices.

    Attributes:
        axes: (name, size) pairs, major to minor; () is one device.
        device_ids: positions in the cluster's device list, row-major over the axes.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    def size(self, axis: str) -> int:
        """Devices along `axis`; PlanError if there is no such axis."""
        for name, size in self.axes:
            if name == axis:
                return size
        raise PlanError(f"the mesh has no axis '{axis}'", code="SHARDC-110")

    def num_shards(self, axes: tuple[str, ...]) -> int:
        """Product of the sizes of `axes`."""
        count = 1
        for axis in axes:
            count *= self.size(axis)
        return count


def ranges(numbers: tuple[int, ...]) -> str:
    """Numbers as people write them: `0-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def stage_names(numbers: Sequence[int], num_own: int) -> str:
    """`stage 1`; `stages 0-1, 0', 1'`: the stages, then second copies, as actions print them.

    Args:
        num_own: stages of the plan without second copies, which follow them.
    """
    own = ranges(tuple(n for n in numbers if n < num_own))
    copies = [f"{n - num_own}'" for n in sorted(numbers) if n >= num_own]
    return f"stage{'s' * (len(numbers) > 1)} {', '.join([*filter(None, [own]), *copies])}"


def name_of_rows(name: str, first: int, last: int) -> str:
    """The name of some rows of an argument; `whole_name` drops the rows again."""
    return f"{name}, rows {first}:{last}"


def whole_name(name: str) -> str:
    """A name without its rows."""
    return _ROWS.sub("", name)


def keys_of(name: str) -> list[str]:
    """The argument and the keys in `state['params'][0], rows 2:4`."""
    return [next(filter(None, found), "") for found in _KEYS.findall(whole_name(name))]


def pattern_of(name: str) -> str:
    """A name without its numbers: equal for names that differ only in these."""
    return _NUMBER.sub("*", name)


def folded_name(names: Sequence[str]) -> str:
    """`blocks[0-3].up` for names of one pattern."""
    numbers = [_NUMBER.findall(name) for name in names]
    texts = _NUMBER.split(names[0])
    parts = [texts[0]]
    for n, text in enumerate(texts[1:]):
        own = {int(each[n]) for each in numbers}
        listed = ranges(tuple(own)).split(",")
        few = listed if len(listed) <= MOST_RANGES else [*listed[: MOST_RANGES - 1], "..."]
        parts += [",".join(few), text]
    return "".join(parts)


def folded_names(names: Sequence[str]) -> list[str]:
    """One name for each pattern, in order of their first."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern_of(name), []).append(name)
    return [folded_name(own) for own in found.values()]
