"""The devices of `shardc run`: virtual CPU devices, or the machine's GPUs."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shardc.cluster import Cluster
from shardc.errors import ClusterError

if TYPE_CHECKING:
    import jax

# Many virtual devices share a few cores: one that waits for a collective is slow, not stuck.
_PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=120",
    "--xla_cpu_collective_call_terminate_timeout_seconds=1200",
)

MOST_VIRTUAL = 1024


def start_devices(count: int, platform: str, *, patient: bool = True) -> "tuple[jax.Device, ...]":
    """Starts `count` devices; must run before anything starts a JAX backend.

    Args:
        platform: "cpu": virtual devices; "gpu": real ones.
        patient: virtual devices wait for each other for as long as a busy machine needs.
    Raises:
        ClusterError: SHARDC-101, the machine has fewer.
    """
    if platform == "cpu":
        if count > MOST_VIRTUAL:
            raise ClusterError(
                f"--devices {count}: this machine supports at most {MOST_VIRTUAL} virtual devices,"
                " each with its own threads",
                help="run on fewer, and plan for more: shardc plan --cluster",
                code="SHARDC-101",
            )
        flags = _PATIENCE if patient else ()
        given = os.environ.get("XLA_FLAGS", "")
        added = [flag for flag in flags if flag.partition("=")[0] not in given]
        if added:
            os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    import jax

    if platform == "cpu":
        return _virtual_devices(count)
    try:
        found = jax.devices("gpu")
    except RuntimeError as error:
        raise _too_few(count, 0) from error
    if len(found) < count:
        raise _too_few(count, len(found))
    return tuple(found[:count])


def machine_here(
    count: int, platform: str, cluster: str | None
) -> "tuple[Cluster, tuple[jax.Device, ...]]":
    """The cluster to plan for (by default the local devices), and the devices of `start_devices`.
    Arrays may have 64-bit elements, as files may.

    Raises:
        ClusterError: SHARDC-100, there is no such cluster; 101, it has more devices.
    """
    found = start_devices(count, platform)
    import jax

    from shardc.api.asked_devices import check_devices, resolve_devices

    jax.config.update("jax_enable_x64", True)
    machine, devices = resolve_devices(Cluster.load(cluster) if cluster else None, found)
    check_devices(machine, devices)
    return machine, tuple(devices)


def _virtual_devices(count: int) -> "tuple[jax.Device, ...]":
    import jax

    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX already runs, if a program calls the command as a function
        if len(jax.devices("cpu")) < count:
            raise
    return tuple(jax.devices("cpu")[:count])


def _too_few(wanted: int, found: int) -> ClusterError:
    return ClusterError(
        f"--devices {wanted}: JAX sees {found} GPUs on this machine",
        help="ask for as many, or use virtual CPU devices: --platform cpu",
        code="SHARDC-101",
    )


def platform_option[Command: Callable[..., Any]](command: Command) -> Command:
    """Adds `--platform cpu|gpu` as the parameter `platform`."""
    return click.option(
        "--platform",
        type=click.Choice(["cpu", "gpu"]),
        default=default_platform,
        help="Virtual CPU devices, or GPUs; default: JAX_PLATFORMS, or cpu.",
    )(command)


def default_platform() -> str:
    """The first platform in JAX_PLATFORMS; virtual CPU devices if it is not set."""
    first = os.environ.get("JAX_PLATFORMS", "cpu").split(",")[0]
    return "gpu" if first in ("gpu", "cuda", "rocm") else "cpu"
