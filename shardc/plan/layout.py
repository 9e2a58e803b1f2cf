"""The layout of values on the devices of a mesh, and of stages on groups of devices."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from shardc.cluster import Cluster
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


class Mesh(msgspec.Struct, frozen=True, cache_hash=True):
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


class DeviceGroup(msgspec.Struct, frozen=True):
    """Devices that run one lane of a schedule: all actions of the stages on them.

    Attributes:
        device_ids: as in their meshes; stages of one group may view it as different meshes.
        stages: their numbers in the plan, second copies included, in order.
        memory_bytes: of each device; 0 if unknown.
    """

    device_ids: tuple[int, ...]
    stages: tuple[int, ...]
    memory_bytes: int = 0

    def total[Amount: (int, float)](self, amounts: Sequence[Amount]) -> Amount:
        """The sum over its stages of `amounts`, which has one for each stage of the plan."""
        return sum(amounts[stage] for stage in self.stages)


def device_groups(
    meshes: Iterable[tuple[int, Mesh]], cluster: Cluster | None = None
) -> tuple[DeviceGroup, ...]:
    """The device groups of a pipeline, in order of their first stage.

    Args:
        meshes: the number of each stage, and its mesh.
        cluster: says how much memory the devices have.
    """
    stages: dict[tuple[int, ...], list[int]] = {}
    for stage, mesh in meshes:
        stages.setdefault(mesh.device_ids, []).append(stage)
    return tuple(
        DeviceGroup(ids, tuple(own), cluster.home(ids)[0].device.memory_bytes if cluster else 0)
        for ids, own in stages.items()
    )


class StagePlacement(NamedTuple):
    """What a stage of a plan is: prints as in actions, `1`, and its second copy `1'`."""

    stage: int
    replica: int

    def __str__(self) -> str:
        return f"{self.stage}{"'" * self.replica}"


def placement(number: int, num_own: int) -> StagePlacement:
    """The stage and replica of stage `number`: second copies follow the `num_own` own stages."""
    replica, stage = divmod(number, num_own)
    return StagePlacement(stage, replica)


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
    copies = [str(placement(n, num_own)) for n in sorted(numbers) if n >= num_own]
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
