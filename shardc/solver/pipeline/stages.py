"""Cuts layers into pipeline stages and gives each a submesh.

Alpa's inter-operator dynamic program (Zheng et al., OSDI 2022, algorithm 1), with two changes: the
bottleneck is tightened downwards from the cheapest pipeline, which visits few values, and transfers
between stages are priced.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardc.errors import InfeasibleError, StageError
from shardc.solver.problem.problem import Floats, Ints

StageCost = Callable[[int, int, int, int], float]


@dataclass(frozen=True)
class Pipeline:
    """The stages found.

    Attributes:
        stages: (first layer, last layer, devices) in order; devices are taken in order too.
        step_time_s: sum of stage and transfer times + (microbatches - 1) * the slowest of them.
        bottleneck_s: the slowest stage or transfer.
    """

    stages: tuple[tuple[int, int, int], ...]
    step_time_s: float
    bottleneck_s: float


def plan_stages(
    cost: StageCost,
    *,
    num_layers: int,
    num_devices: int,
    submesh_sizes: Sequence[int],
    num_microbatches: int,
    transfer_s: Sequence[float] = (),
    num_stages: int | None = None,
    devices_per_host: int | None = None,
) -> Pipeline:
    """Finds the pipeline with the least step time, exactly.

    Args:
        cost: cost(i, j, m, after) = seconds of forward and backward of layers i..j for one
            microbatch on a submesh of submesh_sizes[m] devices with `after` stages behind it (which
            decides how many microbatches are in flight); inf if it does not fit. Each combination
            that a pipeline can contain is asked for once.
        transfer_s: per boundary between layers l and l+1 the seconds to send one microbatch's
            values across; () = free. A transfer overlaps with compute, so it acts as a station of
            its own in the pipeline.
        num_stages: None = any.
        devices_per_host: if given, a submesh that fits into a host never straddles two, and a
            larger one starts at a host.
    Raises:
        StageError: SHARDC-160, more stages than layers; SHARDC-162, sizes that cannot fill the
            devices.
        InfeasibleError: SHARDC-220, every way of cutting holds a stage that does not fit.
    """
    if num_stages is not None and num_stages > num_layers:
        raise StageError(
            f"{num_stages} stages were asked for, but the program has {num_layers} layers",
            help=f"ask for at most {num_layers} stages",
        )
    table = _Table.build(
        cost,
        num_layers,
        num_devices,
        submesh_sizes,
        list(transfer_s) or [0.0] * (num_layers - 1),
        num_stages,
        devices_per_host,
    )
    found = _tighten(table, num_microbatches)
    if found is None:
        _explain(table)
    assert found is not None
    return found


@dataclass(frozen=True)
class _Table:
    """Attributes:
    time: [stages after, first layer, last layer, submesh] seconds; inf = not allowed.
    send: per last layer the transfer behind it; 0 behind the last one.
    fits: [submesh, devices of this stage and those after] whether it may be placed there.
    """

    time: Floats
    send: Floats
    fits: npt.NDArray[np.bool_]
    sizes: tuple[int, ...]
    num_devices: int
    num_stages: int | None

    @staticmethod
    def build(
        cost: StageCost,
        num_layers: int,
        num_devices: int,
        sizes: Sequence[int],
        transfer_s: Sequence[float],
        num_stages: int | None,
        devices_per_host: int | None,
    ) -> "_Table":
        most = num_stages or min(num_layers, max(num_devices // min(sizes), 1))
        fits = np.zeros((len(sizes), num_devices + 1), bool)
        for m, size in enumerate(sizes):
            for left in range(size, num_devices + 1):
                fits[m, left] = _placeable(num_devices - left, size, devices_per_host)
        reach = _fillable(sizes, fits, num_devices, most)
        time = np.full((most, num_layers, num_layers, len(sizes)), np.inf)
        for after in range(most):
            for m, size in enumerate(sizes):
                if size > num_devices:
                    continue
                ways = fits[m, size:] & reach[after, : num_devices + 1 - size]
                if not ways.any():
                    continue
                if num_stages is not None and num_stages == after + 1 and not ways[-1]:
                    continue
                for i in range(num_layers):
                    if num_stages is not None and i < num_stages - after - 1:
                        continue
                    if num_stages is not None and num_stages == after + 1 and i > 0:
                        break
                    ends = [num_layers - 1] if after == 0 else range(i, num_layers - after)
                    for j in ends:
                        time[after, i, j, m] = cost(i, j, m, after)
        send = np.array([*transfer_s, 0.0])
        return _Table(time, send, fits, tuple(sizes), num_devices, num_stages)


def _placeable(start: int, size: int, devices_per_host: int | None) -> bool:
    """Whether `size` devices from number `start` on respect the hosts."""
    if devices_per_host is None:
        return True
    inside = start % devices_per_host
    return inside + size <= devices_per_host or (inside == 0 and size % devices_per_host == 0)


def _fillable(
    sizes: Sequence[int], fits: npt.NDArray[np.bool_], num_devices: int, most: int
) -> npt.NDArray[np.bool_]:
    """[stages, devices]: whether that many stages can fill that many last devices."""
    reach = np.zeros((most + 1, num_devices + 1), bool)
    reach[0, 0] = True
    for count in range(1, most + 1):
        for m, size in enumerate(sizes):
            if size > num_devices:
                continue
            reach[count, size:] |= reach[count - 1, : num_devices + 1 - size] & fits[m, size:]
    return reach


def _tighten(table: _Table, num_microbatches: int) -> Pipeline | None:
    """Best pipeline over all bottlenecks.

    The cheapest pipeline whose slowest station is below b also is it for every b down to its own
    slowest station, so b jumps from one such value to the next. Stops when even the smallest
    possible bottleneck cannot pay for the sum any more.
    """
    stations = np.unique(table.time[np.isfinite(table.time)])
    stations = np.unique(np.concatenate([stations, table.send]))
    least = 0.0
    low, high = 0, len(stations) - 1
    while low < high:  # the smallest bottleneck with which a pipeline exists
        middle = (low + high) // 2
        if _cheapest(table, float(stations[middle]), inclusive=True) is None:
            low = middle + 1
        else:
            high = middle
    if len(stations):
        least = float(stations[low])
    best: Pipeline | None = None
    below = math.inf
    while (found := _cheapest(table, below, inclusive=False)) is not None:
        stages, total, slowest = found
        step = total + (num_microbatches - 1) * slowest
        if best is None or step < best.step_time_s:
            best = Pipeline(stages, step, slowest)
        if total + (num_microbatches - 1) * least >= best.step_time_s:
            break
        below = slowest
    return best


def _cheapest(
    table: _Table, bound: float, *, inclusive: bool
) -> tuple[tuple[tuple[int, int, int], ...], float, float] | None:
    """Least sum of times with every station below `bound`: stages, sum, slowest station."""
    allowed = table.time <= bound if inclusive else table.time < bound
    sendable = table.send <= bound if inclusive else table.send < bound
    send = np.where(
        sendable | (np.arange(len(table.send)) == len(table.send) - 1), table.send, np.inf
    )
    time = np.where(allowed, table.time, np.inf) + send[None, None, :, None]
    most, num_layers = time.shape[:2]
    devices = table.num_devices
    # ahead[k, d]: least sum for layers k.. on the last d devices with the current stage count.
    ahead = np.full((num_layers + 1, devices + 1), np.inf)
    ahead[num_layers, 0] = 0.0
    picks: list[Ints] = []
    best_sum, best_count = math.inf, 0
    for count in range(1, most + 1):
        options = np.full((len(table.sizes), num_layers, num_layers, devices + 1), np.inf)
        for m, size in enumerate(table.sizes):
            if size <= devices:
                rest = ahead[1:, : devices + 1 - size]
                options[m, :, :, size:] = time[count - 1, :, :, m, None] + rest[None]
                options[m, :, :, ~table.fits[m]] = np.inf
        flat = options.transpose(1, 3, 0, 2).reshape(num_layers, devices + 1, -1)
        pick = flat.argmin(axis=2)
        picks.append(pick)
        ahead = np.full((num_layers + 1, devices + 1), np.inf)
        ahead[:num_layers] = np.take_along_axis(flat, pick[:, :, None], axis=2)[:, :, 0]
        if ahead[0, devices] < best_sum and table.num_stages in (None, count):
            best_sum, best_count = float(ahead[0, devices]), count
    if best_count == 0:
        return None
    stages: list[tuple[int, int, int]] = []
    layer, left, slowest = 0, devices, 0.0
    for count in range(best_count, 0, -1):
        m, last = divmod(int(picks[count - 1][layer, left]), num_layers)
        slowest = max(
            slowest, float(table.time[count - 1, layer, last, m]), float(table.send[last])
        )
        stages.append((layer, last, table.sizes[m]))
        layer, left = last + 1, left - table.sizes[m]
    return tuple(stages), best_sum, slowest


def _explain(table: _Table) -> None:
    """Raises the error that says why there is no pipeline."""
    most = len(table.time)
    reach = _fillable(table.sizes, table.fits, table.num_devices, most)
    counts = [table.num_stages] if table.num_stages is not None else list(range(1, most + 1))
    if not any(reach[count, table.num_devices] for count in counts):
        wanted = "" if table.num_stages is None else f" with {table.num_stages} stages"
        raise StageError(
            f"submeshes of {', '.join(map(str, table.sizes))} devices cannot fill"
            f" {table.num_devices} devices{wanted}",
            code="SHARDC-162",
            help="ask for another number of stages or devices",
        )
    raise InfeasibleError(
        f"no way of cutting {table.time.shape[1]} layers into stages on {table.num_devices} devices"
        " keeps every stage within its memory",
        code="SHARDC-220",
        help="raise the memory limit, use more devices, or use more microbatches",
    )
