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
from shardc.runtime.processes.peers import hosts_of_ranks

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
    hosts = hosts_of_ranks()
    where = [hosts[device.process_index] for device in devices]
    runs = [len(list(same)) for _, same in itertools.groupby(where)]
    if len(set(runs)) > 1 or len(runs) != len(set(where)):
        raise ClusterError(
            f"{', '.join(map(str, runs))} devices lie on one host after the other: only hosts with"
            " equally many can be one cluster",
            help="start as many processes on each host, with as many devices, host by host",
            code="SHARDC-101",
        )
    node, network = Joined(NODE, runs[0], 1), Joined("network", len(runs), runs[0])
    return [level for level in (node, network) if level.size > 1]
