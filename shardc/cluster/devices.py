"""The devices of a cluster: their peaks, and how far they fall short of them."""

import difflib
import functools
import re
import sys

import msgspec

from shardc.errors import ClusterError

# Names of elements that StableHLO has, as NumPy and ml_dtypes spell them.
DTYPES = frozenset(
    {"bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)}
    | {f"float8_{kind}" for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz")}
    | {f"float8_{kind}" for kind in ("e5m2", "e5m2fnuz", "e8m0fnu")}
    | {"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
)


@functools.cache
def bits_of(dtype: str) -> int:
    """Bits of an element: the first number in the name of its type, 8 for bool."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8


def _require(owner: str, low: float, high: float, wanted: str, numbers: dict[str, float]) -> None:
    for name, number in numbers.items():
        given: object = number  # in Python it may be anything
        if not isinstance(given, int | float) or not low <= given <= high:
            raise ClusterError(f"{name} of {owner} is {given!r}", help=f"give a {name} {wanted}")


def require_positive(owner: str, **numbers: float) -> None:
    _require(owner, sys.float_info.min, sys.float_info.max, "above 0", numbers)


def require_not_negative(owner: str, **numbers: float) -> None:
    _require(owner, 0, sys.float_info.max, "of 0 or more", numbers)


def require_shares(owner: str, **numbers: float) -> None:
    wanted = "above 0 and at most 1: a share of the peak"
    _require(owner, sys.float_info.min, 1, wanted, numbers)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a device falls short of its peaks; with the defaults it reaches them.

    Attributes:
        product_efficiency: share of the peak FLOP/s that a large product reaches.
        half_side: rows, or columns, at which a product reaches half of that.
        half_depth: contracted elements at which a product reaches half of that.
        unaligned: factor for products with a side or depth that is not a multiple of 16 bytes.
        memory_efficiency: share of the memory bandwidth that a large kernel reaches.
        launch_s: from one kernel to the next.
        source: field name -> the source of its number.
    """

    product_efficiency: float = 1.0
    half_side: float = 0.0
    half_depth: float = 0.0
    unaligned: float = 1.0
    memory_efficiency: float = 1.0
    launch_s: float = 0.0
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = "the device's timing"
        require_shares(
            owner,
            product_efficiency=self.product_efficiency,
            unaligned=self.unaligned,
            memory_efficiency=self.memory_efficiency,
        )
        require_not_negative(owner, **_numbers(self))


class Software(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the software that runs the devices adds, whatever they are; by default nothing.

    Attributes:
        dispatch_s: host time per kernel; the host runs ahead of the device.
        wait_s: host time per doubling of a collective's group, waiting for the last of them.
        host_exposed: exposed part of the shorter of host and device time, from 0 to 1.
        action_s: host time per action of the schedule.
        step_s: host time per step.
        gradient_overlap: share of the gradient reduction that is hidden behind the backward.
        transfers_overlap: a transfer between stages overlaps with its sender's compute.
        half_sums: 16-bit partial sums are sent as they are, not as float32.
        source: field name -> the source of its number.
    """

    dispatch_s: float = 0.0
    wait_s: float = 0.0
    host_exposed: float = 0.0
    action_s: float = 0.0
    step_s: float = 0.0
    gradient_overlap: float = 0.0
    transfers_overlap: bool = True
    half_sums: bool = False
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = "the device's software"
        numbers = _numbers(self)
        require_not_negative(owner, **numbers)
        for name in ("gradient_overlap", "host_exposed"):
            if numbers[name] > 1:
                raise ClusterError(
                    f"{name} of {owner} is {numbers[name]}", help=f"give a {name} from 0 to 1"
                )


def _numbers(part: Timing | Software) -> dict[str, float]:
    return {name: getattr(part, name) for name in part.__struct_fields__ if name != "source"}


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device; all devices of an island are alike.

    Attributes:
        memory_bytes: available to a program on one device.
        flops_per_s: peak FLOP/s by dtype name ("float32", "bfloat16", ...); "default" for the rest.
        memory_bandwidth_bytes_per_s: between the device and its own memory.
        timing: how far it falls short of these.
        software: what the programs that run it add.
        source: field name -> the source of its number.
        host_bandwidth_bytes_per_s: between the device and the memory of its host, each way; 0:
            unknown, and offloading is not priced.
    """

    name: str
    memory_bytes: int
    flops_per_s: dict[str, float]
    memory_bandwidth_bytes_per_s: float
    timing: Timing = Timing()
    software: Software = Software()
    source: dict[str, str] = {}
    host_bandwidth_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(
            f"device '{self.name}'",
            memory_bytes=self.memory_bytes,
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s,
            **{f"flops_per_s['{dtype}']": peak for dtype, peak in self.flops_per_s.items()},
        )
        require_not_negative(
            f"device '{self.name}'", host_bandwidth_bytes_per_s=self.host_bandwidth_bytes_per_s
        )
        if "default" not in self.flops_per_s:
            raise ClusterError(
                f"flops_per_s of device '{self.name}' has no entry 'default'",
                help='add "default": the FLOP/s for every dtype that is not listed',
            )

        unknown = sorted(set(self.flops_per_s) - DTYPES - {"default"})
        if unknown:
            near = difflib.get_close_matches(unknown[0], sorted(DTYPES), 3)
            raise ClusterError(
                f"flops_per_s of device '{self.name}' has a rate for '{unknown[0]}', which is no"
                " dtype",
                help=f"name dtypes as NumPy does: {', '.join(near or ('float32', 'bfloat16'))}",
            )

    def has_rate(self, dtype: str) -> bool:
        """Whether the rate of a dtype is listed; a lone default is the rate of all of them."""
        return dtype in self.flops_per_s or len(self.flops_per_s) == 1

    def peak_flops_per_s(self, dtype: str) -> float:
        """Peak FLOP/s for `dtype`, or the default."""
        return self.flops_per_s.get(dtype, self.flops_per_s["default"])
