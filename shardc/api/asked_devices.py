"""The devices that the caller of `shardc.jit` asks for."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding

from shardc.api.request import several
from shardc.cluster import Cluster
from shardc.errors import ClusterError, InputError, RequestWarning
from shardc.plan.layout import ranges
from shardc.runtime.processes.peers import devices_of_hosts, hosts_of_ranks


def given_devices(devices: Any) -> tuple[jax.Device, ...] | None:
    """What `devices=` holds: a sequence of JAX devices, or an array of them as a mesh has it.

    Raises:
        InputError: SHARDC-180, it holds something else.
    """
    if devices is None:
        return None
    found = several(devices.flat if isinstance(devices, np.ndarray) else devices)
    strange = [each for each in found if not isinstance(each, jax.Device)]
    if strange or not found:
        raise InputError(
            f"devices has {strange[0]!r}, which is not a JAX device"
            if strange
            else f"devices={devices!r} holds no JAX device",
            help="give JAX devices, such as devices=jax.devices()[:4]",
        )
    return found


def devices_of(backend: str) -> list[jax.Device]:
    """The devices of a platform; InputError (SHARDC-180) if there is none of that name."""
    try:
        return jax.devices(backend)
    except RuntimeError as error:
        raise InputError(
            f"backend={backend!r}: {error}",
            help=f"leave it out, or give a platform such as {jax.default_backend()!r}",
        ) from error


def resolve_devices(
    cluster: Cluster | None, devices: Sequence[jax.Device] | None
) -> tuple[Cluster, tuple[jax.Device, ...]]:
    """The cluster to plan for, and the devices that represent its devices 0, 1, ...

    There may be fewer than it has: planning needs none of them, and `check_devices` checks later.

    The devices of one host are contiguous, and so are those of a process, so that inner axes of a
    mesh stay inside them. In a job of several processes, all of them call this.
    """
    hosts = hosts_of_ranks()
    first = {host: rank for rank, host in reversed(list(enumerate(hosts)))}

    def place(device: jax.Device) -> tuple[int, int, int]:
        return first[hosts[device.process_index]], device.process_index, device.id

    own = tuple(sorted(jax.devices(), key=place) if devices is None else devices)
    of_hosts = devices_of_hosts(own)
    if of_hosts is None:
        warnings.warn(
            "devices= alternates between hosts, so axes of a mesh that should stay inside a host"
            " cross the network; order them by host",
            RequestWarning,
            skip_file_prefixes=(str(Path(__file__).parent),),
        )
    if cluster is None:
        return Cluster.local(of_hosts or [len(own)]), own
    return cluster, own[: cluster.num_devices]


def check_devices(cluster: Cluster, devices: Sequence[jax.Device]) -> None:
    """ClusterError (SHARDC-101) if the cluster has more devices than there are to run on."""
    if cluster.num_devices > len(devices):
        raise ClusterError(
            f"cluster '{cluster.name}' has {cluster.num_devices} devices, and there are"
            f" {len(devices)} JAX devices to run on",
            help="on a CPU, ask JAX for more before it starts:"
            f" jax.config.update('jax_num_cpu_devices', {cluster.num_devices});"
            " or plan without running: f.lower(...).plan(), or the command shardc plan",
            code="SHARDC-101",
        )


def check_asked_devices(shardings: Any, devices: Sequence[jax.Device]) -> None:
    """Checks the devices in `in_shardings` or `out_shardings`; shardc assigns devices itself.

    Raises:
        InputError: SHARDC-205, they name devices that the function does not run on.
    """
    own = set(devices)
    for sharding in jax.tree.leaves(shardings):
        if not isinstance(sharding, NamedSharding) or isinstance(sharding.mesh, AbstractMesh):
            continue
        asked = set(sharding.mesh.devices.flat)
        if len(asked) > 1 and not asked <= own:
            raise InputError(
                f"a sharding is over the devices {_ids(asked)}, and the function runs on"
                f" {_ids(own)}",
                help="give devices=mesh.devices.flat, or a mesh of the devices that it runs on",
                code="SHARDC-205",
            )
        if len(asked) > 1 and asked != set(devices[: len(asked)]):
            warnings.warn(
                f"a sharding is over the devices {_ids(asked)}: its axes count, but shardc chooses"
                " the devices; give devices=mesh.devices.flat to run on these",
                RequestWarning,
                skip_file_prefixes=(str(Path(__file__).parent),),
            )


def _ids(devices: Iterable[jax.Device]) -> str:
    return ranges(tuple(device.id for device in devices))
