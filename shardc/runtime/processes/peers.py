"""What the processes of a job know of each other: their hosts, and where to fetch arrays."""

import functools
import itertools
import json
import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from shardc.errors import ClusterError
from shardc.runtime.messages.between import Between
from shardc.runtime.messages.direct import Offers
from shardc.runtime.processes.job import Job, is_several, this_job
from shardc.runtime.processes.xla_threads import are_enough
from shardc.runtime.transport import InProcess

VARIABLE = "SHARDC_TRANSFERS"
CHOICES = ("auto", "direct", "collective")
LOOPBACK = "127.0.0.1"


class Peer(NamedTuple):
    """A process of the job.

    Attributes:
        host: differs between machines, and between containers with networks of their own.
        address: of its transfer server; empty if it has none.
    """

    host: str
    address: str


@functools.cache
def peers() -> tuple[Peer, ...]:
    """By rank; all processes call it at the same point."""
    return peers_of(this_job())


def peers_of(job: Job) -> tuple[Peer, ...]:
    """As `peers`; rank 0 collects the answers."""
    name = job.new_plan()  # who does not come here is named
    server = transfer_server()
    own = json.dumps([this_host(), "" if server is None else server.address()]).encode()
    if job.rank == 0:
        found = {0: own, **job.collect(f"peer/{name}")}
        every = json.dumps([json.loads(found[rank]) for rank in range(job.size)]).encode()
        job.coordination.set(f"peers/{name}", every)
    else:
        job.coordination.set(f"peer/{name}/{job.rank}", own)
        every = job.wait(f"peers/{name}")
    return tuple(Peer(*each) for each in json.loads(every))


def hosts_of_ranks() -> list[str]:
    """By rank, its host; all processes call it."""
    return [peer.host for peer in peers()] if is_several() else [""]


def devices_of_hosts(devices: Sequence[jax.Device]) -> list[int] | None:
    """How many of the devices each host has, in their order; None if they alternate between hosts;
    all processes call it."""
    hosts = hosts_of_ranks()
    where = [hosts[device.process_index] for device in devices]
    runs = [len(list(same)) for _, same in itertools.groupby(where)]
    return runs if len(runs) == len(set(where)) else None


def this_host() -> str:
    """Name of the machine, when it was booted, and its network."""
    known = [platform.node()]
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    if boot.exists() and network.exists():
        known += [boot.read_text().strip(), str(network.stat().st_ino)]
    return " ".join(known)


@functools.cache
def transfer_server() -> Any:
    """JAX's server for the arrays of this process; None where it is not used.

    By default CPU processes use it, at an address that only this machine can reach, if XLA has
    threads enough. With SHARDC_TRANSFERS=direct it listens where the machine meets rank 0.

    Raises:
        ClusterError: SHARDC-101, the environment variable is none of the choices.
    """
    chosen = os.environ.get(VARIABLE, CHOICES[0])
    if chosen not in CHOICES:
        raise ClusterError(
            f"{VARIABLE}={chosen} is not a way to transfer arrays between processes",
            help=f"it is one of {', '.join(CHOICES)}",
            code="SHARDC-101",
        )
    device = jax.local_devices()[0]
    is_fit = device.platform == "cpu" and are_enough(jax.local_device_count())
    if chosen == "collective" or (chosen == "auto" and not is_fit):
        return None
    try:
        from jax.experimental import transfer
    except ImportError:  # a jaxlib without it
        return None
    host = LOOPBACK if chosen == "auto" else _outer_address()
    return transfer.start_transfer_server(device.client, f"{host}:0", [f"{host}:0"])


def _outer_address() -> str:
    """The address of this machine on the way to rank 0."""
    from shardc.runtime.processes.coordination import place_in_job

    host, _, port = place_in_job()[2].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.connect((host, int(port)))  # sends nothing
        address: str = found.getsockname()[0]
    return address


def can_fetch(ranks: set[int]) -> bool:
    """Whether all these processes can fetch arrays from each other."""
    every = [peers()[rank] for rank in ranks]
    far = len({peer.host for peer in every}) > 1
    return all(peer.address and not (far and peer.address.startswith(LOOPBACK)) for peer in every)


@functools.cache
def job_offers() -> Offers | None:
    """What this process offers to the others; None if it does not; all processes call it."""
    addresses = [peer.address for peer in peers()]
    server = transfer_server()
    return None if server is None else Offers(server, addresses, jax.process_index())


def between_processes(local: InProcess) -> Between | None:
    """Transport to the other processes; None if there are none; all processes call it."""
    return Between(local, job_offers(), can_fetch) if is_several() else None
