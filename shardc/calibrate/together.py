"""What the processes of a job tell each other while they calibrate."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import msgspec

from shardc.calibrate.link_probes import Joined
from shardc.calibrate.timer import Key, Sample
from shardc.errors import ClusterError
from shardc.runtime.processes.job import is_several, this_job
from shardc.runtime.processes.peers import devices_of_hosts

NODE = "node"  # the level inside a host

Gather = Callable[[Any], list[Any]]
"""The values of all processes, by rank, as MessagePack has them; all call it at the same point."""


def gathering() -> Gather:
    """How this process tells the others of its job; alone it tells itself."""
    if not is_several():
        return lambda value: [value]
    job = this_job()
    folder = f"calibrate/{job.new_plan()}"
    turns = itertools.count()

    def gather(value: Any) -> list[Any]:
        turn = f"{folder}/{next(turns)}"
        own = msgspec.msgpack.encode(value)
        if job.rank:
            job.coordination.set(f"{turn}/{job.rank}", own)
            whole = job.wait(f"{turn}/all")
        else:
            found = {0: own, **job.collect(turn)}
            whole = msgspec.msgpack.encode([msgspec.Raw(found[rank]) for rank in range(job.size)])
            job.coordination.set(f"{turn}/all", whole)
        every: list[Any] = msgspec.msgpack.decode(whole)
        return every

    return gather


def slowest(samples: Sequence[Sample], gather: Gather) -> list[Sample]:
    """What all processes measured, each as the slowest of them did: a step waits for it."""
    every = [msgspec.convert(each, list[Sample]) for each in gather(list(samples))]
    found: dict[Key, list[Sample]] = {}
    for each in itertools.chain(*every):
        found.setdefault(each.key, []).append(each)
    return [
        max(same, key=lambda each: each.seconds)
        for same in found.values()
        if len(same) == len(every)
    ]


def levels_of(devices: Sequence[jax.Device]) -> list[Joined]:
    """The levels of links between devices: inside hosts, and between them.

    Raises:
        ClusterError: SHARDC-101, hosts have unlike numbers of devices, or alternate.
    """
    of_hosts = devices_of_hosts(devices)
    if of_hosts is None or len(set(of_hosts)) > 1:
        lie = "alternate" if of_hosts is None else f"are {', '.join(map(str, of_hosts))}"
        raise ClusterError(
            f"the devices of the hosts {lie}: a cluster has equally many on each, host by host",
            help="start as many processes on each host, with as many devices, host by host",
            code="SHARDC-101",
        )
    node, network = Joined(NODE, of_hosts[0], 1), Joined("network", len(of_hosts), of_hosts[0])
    return [level for level in (node, network) if level.size > 1]
