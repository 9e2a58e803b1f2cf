"""The complete calibration: measure, fit, describe."""

import datetime
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import jax
import jaxlib.version
import msgspec

from shardc.calibrate.compute_probes import measure_compute, of_devices
from shardc.calibrate.fit import Computes, Residual, Sends, call_s, fit_device, fit_links, rounded
from shardc.calibrate.link_probes import Joined, measure_links
from shardc.calibrate.timer import Key, Sample, Timer
from shardc.calibrate.together import NODE, Gather, gathering, levels_of, slowest
from shardc.cluster import Cluster, Device, Level, Software

BUSY = 0.1  # spread above which everything is measured once more
LOAD = 0.2  # waiting processes per core above which it is, however even the repeats are
LIMIT_S = {False: 75.0, True: 12.0}  # per round, by `quick`; the slowest sample may overrun
LINKS_SHARE = 0.4  # of the limit
FITTED = ("bandwidth_bytes_per_s", "latency_s", "groups", "launch_s", "transfer_efficiency")


@dataclass(frozen=True)
class Calibration:
    """The measurements, and the cluster fitted to them.

    Attributes:
        busy: median relative excess of the repeats over their fastest quarter.
        load: processes per core that were waiting to run before the calibration.
        rounds: 2 if the machine was busy before or in the first one.
        apart: median relative difference of the samples of two rounds; 0 after one.
        errors: relative error of each fitted constant, widened by all three.
    """

    cluster: Cluster
    samples: tuple[Sample, ...]
    residuals: tuple[Residual, ...]
    errors: dict[str, float]
    busy: float
    load: float
    rounds: int
    apart: float = 0.0

    @property
    def mean_residual(self) -> float:
        """Mean relative size of the residuals."""
        return sum(abs(each.relative) for each in self.residuals) / max(len(self.residuals), 1)


def calibrate(
    devices: Sequence[jax.Device],
    *,
    quick: bool = False,
    say: Callable[[str], None] | None = None,
    action_s: Callable[[Sequence[jax.Device]], float] | None = None,
) -> Calibration:
    """Measures equal devices and the links between them.

    A busy machine is measured twice, and the faster of two samples counts. Even repeats do not
    mean a quiet machine: others that run all the time slow all of them down alike, which the load
    and the difference between the rounds show. In a job of several processes all of them call
    this, and all get the same; of each measurement the slowest process counts.

    Args:
        devices: host by host; in a job some of each process.
        say: receives a line at each step.
        action_s: measures the host's time for an action of a pipeline, here; None: that of a call
            of a compiled program.
    Raises:
        ClusterError: SHARDC-103, a device failed; 101, hosts are not alike.
    """
    tell = say or (lambda line: None)
    gather = gathering()
    levels = levels_of(devices)
    load = max(gather(os.getloadavg()[0] / (os.cpu_count() or 1)))
    timers = [_measured(devices, levels, quick, tell, gather)]
    if timers[0].busy > BUSY or load > LOAD:
        tell(
            f"the machine is busy: load {load:.1f} per core, repeats differ by"
            f" {timers[0].busy:.0%}; measuring again"
        )
        timers.append(_measured(devices, levels, quick, tell, gather))
    samples = fastest([sample for timer in timers for sample in timer.samples])
    if devices[0].platform != "cpu":
        samples = of_devices(samples)
    busy = min(timer.busy for timer in timers)
    apart = difference(*(timer.samples for timer in timers)) if len(timers) > 1 else 0.0
    per_host = next((level.size for level in levels if level.name == NODE), 1)
    memory_bytes = _memory_bytes(devices[0], gather, per_host)
    computes = fit_device(samples, devices[0].device_kind, memory_bytes)
    links = {level: fit_links(samples, level.name) for level in levels}
    said = f"repeats differed by {busy:.0%}, load {load:.1f} per core"
    if len(timers) > 1:
        said += f", two rounds by {apart:.0%}"
    tell("actions of a pipeline")
    host_s = max(gather(0.0 if action_s is None else action_s(devices))) or call_s(samples)
    cluster = described(computes, links, host_s, devices, said)
    widened = (1 + busy) * (1 + apart) * (1 + load)
    errors = {
        name: (1 + error) * widened - 1
        for errors in (computes.errors, *(sends.errors for sends in links.values() if sends))
        for name, error in errors.items()
        if math.isfinite(error)
    }
    residuals = (
        *computes.residuals,
        *(each for sends in links.values() if sends for each in sends.residuals),
    )
    return Calibration(cluster, tuple(samples), residuals, errors, busy, load, len(timers), apart)


def difference(one: Sequence[Sample], other: Sequence[Sample]) -> float:
    """Median relative difference of what two rounds measured; 0 if they measured nothing alike."""
    known = {each.key: each.seconds for each in one}
    apart = [
        max(a, each.seconds) / min(a, each.seconds) - 1
        for each in other
        if (a := known.get(each.key)) is not None
    ]
    return median(apart) if apart else 0.0


def fastest(samples: Sequence[Sample]) -> list[Sample]:
    """The least disturbed sample of each measurement."""
    found: dict[Key, Sample] = {}
    for each in samples:
        if each.key not in found or each.seconds < found[each.key].seconds:
            found[each.key] = each
    return list(found.values())


def described(
    computes: Computes,
    links: Mapping[Joined, Sends | None],
    action_s: float,
    devices: Sequence[jax.Device],
    said: str,
) -> Cluster:
    """The cluster file: constants with the date, versions and machine they were measured on.

    Args:
        action_s: host time per action.
        said: how busy the machine was.
    """
    today = datetime.datetime.now(datetime.UTC).date()
    made = (
        f"measured on {today} by shardc calibrate (jax {jax.__version__}, jaxlib"
        f" {jaxlib.version.__version__}) on {len(devices)} x {devices[0].device_kind}; {said}"
    )
    timing = msgspec.structs.replace(
        rounded(computes.device.timing),
        source=dict.fromkeys(("half_side", "half_depth", "launch_s"), made),
    )
    software = Software(action_s=action_s, source={"action_s": made})
    if devices[0].platform == "cpu":
        source = {**software.source, "transfers_overlap": "assumed: it sends with its own cores"}
        software = msgspec.structs.replace(software, transfers_overlap=False, source=source)
    device = Device(
        computes.device.name,
        computes.device.memory_bytes,
        {k: float(f"{v:.3g}") for k, v in computes.device.flops_per_s.items()},
        float(f"{computes.device.memory_bandwidth_bytes_per_s:.3g}"),
        timing,
        rounded(software),
        {
            "memory_bytes": "as reported by the device; for a CPU, its share of the machine's",
            "flops_per_s": f"rate of large products; {made}",
            "memory_bandwidth_bytes_per_s": f"rate of large kernels; {made}",
        },
    )
    levels = [
        rounded(
            Level(
                level.name,
                level.size,
                sends.bandwidth_bytes_per_s,
                sends.latency_s,
                groups=sends.groups,
                launch_s=sends.launch_s,
                transfer_efficiency=sends.transfer_efficiency,
                source=dict.fromkeys(FITTED, made),
            )
        )
        for level, sends in links.items()
        if sends is not None
    ]
    return Cluster("calibrated", device, tuple(levels))


def _measured(
    devices: Sequence[jax.Device],
    levels: Sequence[Joined],
    quick: bool,
    tell: Callable[[str], None],
    gather: Gather,
) -> Timer:
    timer = Timer(LIMIT_S[quick] * (1 - LINKS_SHARE))
    tell(f"products, kernels and calls on {len(devices)} devices")
    measure_compute(timer, devices, quick)
    links = Timer(LIMIT_S[quick] * LINKS_SHARE, agree=lambda late: any(gather(late)))
    tell("collectives and transfers")
    measure_links(links, devices, levels, quick)
    timer.samples = slowest(timer.samples + links.samples, gather)
    return timer


def _memory_bytes(device: jax.Device, gather: Gather, per_host: int) -> int:
    """Of the smallest device of the job; of a CPU its share of the host's."""
    if device.platform == "cpu":
        own = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // per_host
    else:
        stats = jax.local_devices(backend=device.platform)[0].memory_stats() or {}
        own = int(stats.get("bytes_limit", 1 << 34))
    return int(min(gather(own)))
