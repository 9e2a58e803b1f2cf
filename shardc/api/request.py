"""Checks the request of the caller of `shardc.jit` or of a command."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardc.api.jax_version import usable_lowering
from shardc.cluster import Cluster
from shardc.errors import ClusterError, InputError, PlanError
from shardc.options import TIME_LIMIT_S, EqualLayers, PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.plan.stages_spec import StagesSpec
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
    early_updates: Any = False,
) -> PlanOptions:
    """PlanOptions; InputError (SHARDC-180) names an invalid argument."""
    _check_count("stages", stages)
    _check_count("microbatches", microbatches)
    _check_count("chunks", chunks)
    _check_count("slices", slices)
    if not isinstance(schedule, str):
        raise InputError(
            f"schedule={schedule!r} is not the name of a schedule",
            help='give a name such as schedule="1f1b", or schedule="auto"',
        )
    if schedule != "auto":
        family = schedule_named(schedule)
        family.num_chunks(None if chunks == "auto" else chunks)
        family.num_slices(None if slices == "auto" else slices)
        if family.only is not None:
            stages, microbatches = (
                own if _is(asked, "auto") else asked
                for own, asked in zip(family.only, (stages, microbatches), strict=True)
            )
    mesh_axes: tuple[str, ...] = ()
    if isinstance(mesh, jax.sharding.Mesh | jax.sharding.AbstractMesh):
        mesh = dict(mesh.shape)
    if isinstance(mesh, Mapping):
        named = {name: size for name, size in mesh.items() if size != 1}
        mesh_axes, mesh = tuple(map(str, named)), tuple(named.values()) or (1,)
    if not _is(mesh, "auto"):
        sizes = (mesh,) if isinstance(mesh, int) else several(mesh)
        if not sizes or not all(_is_count(size) for size in sizes):
            raise InputError(
                f"mesh={mesh!r} is not the shape of a mesh",
                help="give sizes such as mesh=(2, 4), axes such as mesh={'data': 2, 'model': 4},"
                " or mesh='auto'",
            )
        mesh = tuple(sizes)
    for name, number in (
        ("memory_limit_bytes", 1 if memory_limit_bytes is None else memory_limit_bytes),
        ("time_limit_s", time_limit_s),
    ):
        if not (_is_number(number) and 0 < number < math.inf):
            raise InputError(
                f"{name}={number!r} is not a positive number",
                help="give a number, such as memory_limit_bytes=16 * 2**30 or time_limit_s=60",
            )
    if not isinstance(seed, Integral):
        raise InputError(f"seed={seed!r} is not a whole number", help="give seed=0 or another")
    if not any(_is(equal_layers, each) for each in get_args(EqualLayers)):
        raise InputError(
            f"equal layers cannot be {equal_layers!r}",
            help='equal_layers is "relaxed", "tied" or "free"',
        )
    if not any(_is(lowering, each) for each in ("local", "xla")):
        raise InputError(f"there is no lowering {lowering!r}", help='lowering is "local" or "xla"')
    if not isinstance(early_updates, bool):
        raise InputError(
            f"early_updates={early_updates!r} is neither True nor False",
            help="give early_updates=True to update each stage before the others have ended",
        )
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
        early_updates=early_updates,
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is(value: Any, word: str) -> bool:
    """Whether it is this word; arrays, for one, have no such comparison."""
    return isinstance(value, str) and value == word


def several(value: Any) -> tuple[Any, ...]:
    """The items of a sequence; () for text and whatever else is none."""
    return () if isinstance(value, str | bytes) or not isinstance(value, Iterable) else (*value,)


def _check_count(name: str, value: Any) -> None:
    if not _is(value, "auto") and not _is_count(value):
        raise InputError(
            f"{name}={value!r} is neither a positive number nor 'auto'",
            help=f'give {name}=1 or more, or {name}="auto"',
        )


def given_plan(
    plan: Plan | StagesSpec | str | Path | None,
    options: PlanOptions,
    shardings: Collection[str] = (),
) -> Plan | StagesSpec | None:
    """The plan, or hand-written plan, that the caller gave; a path is that of a plan.

    Args:
        shardings: patterns of shardings that the caller gave besides; a hand-written plan has its
            own.
    Raises:
        InputError: SHARDC-180, it is neither; 183, options contradict it.
    """
    if plan is None:
        return None
    if not isinstance(plan, Plan | StagesSpec | str | Path):
        raise InputError(
            f"plan={plan!r} is not a plan",
            help="give a shardc.Plan, a shardc.StagesSpec, or the path of a plan file",
        )
    loaded = plan if isinstance(plan, Plan | StagesSpec) else Plan.load(plan)
    for name in _CHOICES:
        asked = getattr(options, name)
        if asked != "auto":
            raise InputError(
                f"both a plan and {name}={asked} are given",
                help=f"leave out {name}: the plan decides it",
                code="SHARDC-183",
            )
    if shardings and isinstance(loaded, StagesSpec):
        raise InputError(
            f"both a hand-written plan and a sharding are given, of {', '.join(shardings)}",
            help='write it in the plan: "shardings": {"*.kernel": "-,model"}',
            code="SHARDC-183",
        )
    return loaded


def given_file(
    plan: str | None, spec: str | None, options: PlanOptions, shardings: Collection[str]
) -> Plan | StagesSpec | None:
    """The plan in the files given to a command; raises like `given_plan` and the loaders.

    Raises:
        InputError: SHARDC-183, both are given.
    """
    if plan is not None and spec is not None:
        raise InputError(
            "both --plan and --stages-spec are given", help="give one of them", code="SHARDC-183"
        )
    return given_plan(plan if spec is None else StagesSpec.load(spec), options, shardings)


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


def given_shardings(shardings: Any) -> dict[str, PartitionSpec | NamedSharding]:
    """What `shardings=` holds.

    Raises:
        InputError: SHARDC-180, it is not a dict of patterns and shardings.
    """
    if shardings is None:
        return {}
    items = shardings.items() if isinstance(shardings, Mapping) else ((shardings, None),)
    for pattern, spec in items:
        if not isinstance(pattern, str) or not isinstance(spec, PartitionSpec | NamedSharding):
            raise InputError(
                f"shardings has {pattern!r}: {spec!r}"
                if isinstance(shardings, Mapping)
                else f"shardings={shardings!r} is not a dict",
                help='give PartitionSpecs by pattern: {"params.*.kernel": P(None, "model")}',
            )
    return dict(items)


def jax_jitted(fun: Callable[..., Any], **options: Any) -> Any:
    """`jax.jit(fun, **options)`; InputError (SHARDC-180) names the option that JAX refuses."""
    try:
        return jax.jit(fun, **options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"jax.jit does not take {_refused(fun, options)}: {error}",
            help="give a function, and options as jax.jit documents them",
        ) from error


def _refused(fun: Callable[..., Any], options: Mapping[str, Any]) -> str:
    given: object = fun
    if not callable(given):
        return repr(given)
    for name, value in options.items():
        try:
            jax.jit(fun, **{name: value})
        except (TypeError, ValueError):
            return f"{name}={value!r}"
    return "these options together"


def check_pattern(pattern: Any) -> None:
    """InputError (SHARDC-180) unless it is a pattern, or None."""
    if not isinstance(pattern, str | None):
        raise InputError(
            f"{pattern!r} is not a pattern",
            help="give the name of an argument ('params.*.kernel'), of an op or a source position",
        )


def check_stage(stage: Any, executable: Executable) -> None:
    """InputError (SHARDC-180) unless it is the number of a stage, or None."""
    count = len(executable.meshes)
    if stage is not None and not (isinstance(stage, int) and 0 <= stage < count):
        raise InputError(
            f"there is no stage {stage!r}", help=f"count from 0 to {count - 1}, or leave it out"
        )


def given_compiler_options(options: Any) -> dict[str, Any] | None:
    """InputError (SHARDC-180) unless it is a dict, or None."""
    if options is not None and not (
        isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
    ):
        raise InputError(
            f"compiler_options={options!r} is not a dict of options",
            help='give those of XLA, such as {"xla_embed_ir_in_executable": True}',
        )
    return None if options is None else dict(options)


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
