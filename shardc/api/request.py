"""Checks the request of the caller of `shardc.jit` or of a command."""

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding

from shardc.api.jax_version import usable_lowering
from shardc.cluster import Cluster
from shardc.errors import ClusterError, InputError, PlanError, RequestWarning
from shardc.options import TIME_LIMIT_S, EqualLayers, PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges
from shardc.plan.stages_spec import StagesSpec
from shardc.runtime.processes.peers import hosts_of_ranks
from shardc.schedule.registry import schedule_named

_CHOICES = ("stages", "microbatches", "schedule", "chunks", "slices", "mesh")


def plan_options(
    *,
    stages: Any = "auto",
    microbatches: Any = "auto",
    schedule: str = "auto",
    chunks: Any = "auto",
    slices: Any = "auto",
    mesh: Any = "auto",
    batch_args: Sequence[int] | None = None,
    memory_limit_bytes: Any = None,
    time_limit_s: Any = TIME_LIMIT_S,
    seed: Any = 0,
    equal_layers: Any = "relaxed",
    lowering: Any = "local",
) -> PlanOptions:
    """PlanOptions; InputError (SHARDC-180) names an invalid argument."""
    _check_count("stages", stages)
    _check_count("microbatches", microbatches)
    _check_count("chunks", chunks)
    _check_count("slices", slices)
    if schedule != "auto":
        family = schedule_named(schedule)
        family.num_chunks(None if chunks == "auto" else chunks)
        family.num_slices(None if slices == "auto" else slices)
    mesh_axes: tuple[str, ...] = ()
    if isinstance(mesh, jax.sharding.Mesh | jax.sharding.AbstractMesh):
        mesh = dict(mesh.shape)
    if isinstance(mesh, Mapping):
        named = {name: size for name, size in mesh.items() if size != 1}
        mesh_axes, mesh = tuple(map(str, named)), tuple(named.values()) or (1,)
    if mesh != "auto":
        sizes = (mesh,) if isinstance(mesh, int) else mesh
        if isinstance(sizes, str) or not all(_is_count(size) for size in sizes):
            raise InputError(
                f"mesh={mesh!r} is not the shape of a mesh",
                help="give sizes such as mesh=(2, 4), axes such as mesh={'data': 2, 'model': 4},"
                " or mesh='auto'",
            )
        mesh = tuple(sizes)
    for name, number in (
        ("memory_limit_bytes", memory_limit_bytes),
        ("time_limit_s", time_limit_s),
    ):
        if number is not None and not (_is_number(number) and number > 0):
            raise InputError(
                f"{name}={number!r} is not a positive number",
                help="give a number, such as memory_limit_bytes=16 * 2**30 or time_limit_s=60",
            )
    if not isinstance(seed, Integral):
        raise InputError(f"seed={seed!r} is not a whole number", help="give seed=0 or another")
    if equal_layers not in get_args(EqualLayers):
        raise InputError(
            f"equal layers cannot be {equal_layers!r}",
            help='equal_layers is "relaxed", "tied" or "free"',
        )
    if lowering not in ("local", "xla"):
        raise InputError(f"there is no lowering {lowering!r}", help='lowering is "local" or "xla"')
    return PlanOptions(
        stages=stages,
        microbatches=microbatches,
        schedule=schedule,
        chunks=chunks,
        mesh=mesh,
        mesh_axes=mesh_axes,
        batch_args=None if batch_args is None else tuple(batch_args),
        memory_limit_bytes=None if memory_limit_bytes is None else int(memory_limit_bytes),
        time_limit_s=float(time_limit_s),
        seed=int(seed),
        equal_layers=equal_layers,
        lowering=usable_lowering(lowering),
        slices=slices,
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_count(name: str, value: Any) -> None:
    if value != "auto" and not _is_count(value):
        raise InputError(
            f"{name}={value!r} is neither a positive number nor 'auto'",
            help=f'give {name}=1 or more, or {name}="auto"',
        )


def given_plan(
    plan: Plan | StagesSpec | str | Path | None, options: PlanOptions
) -> Plan | StagesSpec | None:
    """The plan, or hand-written plan, that the caller gave; a path is that of a plan.

    Raises:
        InputError: SHARDC-183, options contradict it.
    """
    if plan is None:
        return None
    loaded = plan if isinstance(plan, Plan | StagesSpec) else Plan.load(plan)
    for name in _CHOICES:
        asked = getattr(options, name)
        if asked != "auto":
            raise InputError(
                f"both a plan and {name}={asked} are given",
                help=f"leave out {name}: the plan decides it",
                code="SHARDC-183",
            )
    return loaded


def given_file(
    plan: str | None, spec: str | None, options: PlanOptions
) -> Plan | StagesSpec | None:
    """The plan in the files given to a command; raises like `given_plan` and the loaders.

    Raises:
        InputError: SHARDC-183, both are given.
    """
    if plan is not None and spec is not None:
        raise InputError(
            "both --plan and --stages-spec are given", help="give one of them", code="SHARDC-183"
        )
    return given_plan(plan if spec is None else StagesSpec.load(spec), options)


def resolve_cluster(cluster: Any) -> Cluster | None:
    """The cluster, with built-in names and paths resolved; None: the JAX devices of this job.

    Raises:
        ClusterError: SHARDC-100, it is not a cluster; see also `Cluster.load`.
    """
    if cluster is None or isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, str | Path):
        return Cluster.load(cluster)
    raise ClusterError(
        f"cluster={cluster!r} is not a cluster",
        help="give a shardc.Cluster, the name of a built-in one, or a JSON file",
    )


def given_devices(devices: Any) -> tuple[jax.Device, ...] | None:
    """What `devices=` holds: a sequence of JAX devices, or an array of them as a mesh has it.

    Raises:
        InputError: SHARDC-180, it holds something else.
    """
    if devices is None:
        return None
    found = tuple(devices.flat if isinstance(devices, np.ndarray) else devices)
    strange = next((each for each in found if not isinstance(each, jax.Device)), None)
    if strange is not None or not found:
        raise InputError(
            f"devices has {strange!r}, which is not a JAX device" if found else "devices is empty",
            help="give JAX devices, such as devices=jax.devices()[:4]",
        )
    return found


def given_argnums(batch_argnums: Any) -> tuple[int, ...] | None:
    """Positions of arguments: a number or several.

    Raises:
        InputError: SHARDC-186, something else.
    """
    if batch_argnums is None:
        return None
    numbers = (batch_argnums,) if isinstance(batch_argnums, Integral | str) else batch_argnums
    strange = next((each for each in numbers if not isinstance(each, Integral)), None)
    if strange is not None:
        raise InputError(
            f"batch_argnums has {strange!r}, which is not the position of an argument",
            help="give numbers from 0 on, such as batch_argnums=1",
            code="SHARDC-186",
        )
    return tuple(map(int, numbers))


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
    places = [place(device)[0] for device in own]
    runs = [len(list(same)) for _, same in itertools.groupby(places)]
    if len(runs) > len(set(places)):
        warnings.warn(
            "devices= alternates between hosts, so axes of a mesh that should stay inside a host"
            " cross the network; order them by host",
            RequestWarning,
            skip_file_prefixes=(str(Path(__file__).parent),),
        )
    if cluster is None:
        return Cluster.local(runs if len(runs) == len(set(places)) else [len(own)]), own
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


def warn_of_unmet(plan: Plan) -> None:
    """A RequestWarning, at the caller's line, for each request that the plan does not meet."""
    for note in plan.unmet:
        warnings.warn(str(note), RequestWarning, skip_file_prefixes=(str(Path(__file__).parent),))


def warn_of_placements(places: Sequence[str]) -> None:
    """A RequestWarning for values that the step moves to another memory."""
    if places:
        warnings.warn(
            f"the step moves values to another memory ({len(places)} times, first"
            f" at {places[0]}): shardc leaves them in device memory; memory kinds of"
            " arguments and results are respected",
            RequestWarning,
            skip_file_prefixes=(str(Path(__file__).parent),),
        )


def warn_of_silent_calls(places: Sequence[str]) -> None:
    """A RequestWarning for each callback that is dropped."""
    for place in places:
        warnings.warn(
            f"the callback at {place} is inside a loop or a branch, where shardc cannot call the"
            " host: it is dropped",
            RequestWarning,
            skip_file_prefixes=(str(Path(__file__).parent),),
        )


def check_plan_fits(plan: Plan, devices: Sequence[jax.Device] | None, num_arguments: int) -> None:
    """Refuses a plan that cannot belong to this program, or (unless None) to these devices.

    Raises:
        ClusterError: SHARDC-101, the plan's meshes need devices that do not exist.
        PlanError: SHARDC-200, the plan splits arguments that the program does not have.
    """
    needed = 1 + max(max(stage.mesh.device_ids) for stage in plan.stages)
    if devices is not None and needed > len(devices):
        raise ClusterError(
            f"the plan uses {needed} devices, and there are {len(devices)}",
            help="run on as many devices, or plan again for the available devices",
            code="SHARDC-101",
        )
    check_plan_is_for(plan, num_arguments)


def check_plan_is_for(plan: Plan, num_arguments: int) -> None:
    """Refuses a plan for a program with other arguments: PlanError (SHARDC-200)."""
    if max(plan.batch_arguments, default=-1) >= num_arguments:
        raise PlanError(
            f"the plan takes argument {max(plan.batch_arguments)} for the batch, and the program"
            f" has {num_arguments} arguments",
            help="plan again: this plan was made for another program",
        )


def asked_axes(mesh: Any) -> tuple[tuple[str, int], ...]:
    """Names and sizes of the axes in `mesh=`, including size 1; () if it has no names."""
    if isinstance(mesh, jax.sharding.Mesh | jax.sharding.AbstractMesh):
        mesh = dict(mesh.shape)
    return tuple(mesh.items()) if isinstance(mesh, Mapping) else ()
