"""`shardc.jit`: in the place of `jax.jit`, for many devices."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from shardc.api.compiled import Compiled
from shardc.api.function import ShardedFunction
from shardc.api.request import asked_axes, given_plan, plan_options, resolve_cluster
from shardc.api.stages import Lowered, Planned
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import StagesSpec
from shardc.runtime.gather import gather

__all__ = ["Compiled", "Lowered", "Planned", "ShardedFunction", "gather", "jit"]


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: Any = False,
    compiler_options: dict[str, Any] | None = None,
    cluster: Cluster | str | Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    stages: Any = "auto",
    microbatches: Any = "auto",
    schedule: str = "auto",
    chunks: Any = "auto",
    mesh: Any = "auto",
    shardings: Mapping[str, Any] | None = None,
    batch_argnums: int | Sequence[int] | None = None,
    memory_limit_bytes: int | None = None,
    plan: Plan | StagesSpec | str | Path | None = None,
    time_limit_s: float = 180.0,
    seed: int = 0,
    equal_layers: str = "relaxed",
    lowering: str = "local",
    check: str = "never",
) -> Any:
    """`fun`, planned and run over many devices.

    The first call with arguments of new types traces `fun`, plans it and compiles it; later calls
    run. Plans are kept on disk (see `shardc.api.plan_cache`). Without `fun`, a decorator.

    Args:
        fun: a function of pytrees, as `jax.jit` takes it. It may use any library inside.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as of `jax.jit`.
        keep_unused: accepted and without effect: unused arguments go nowhere.
        inline: as of `jax.jit`, where another transformation calls the function.
        in_shardings, out_shardings: as of `jax.jit`; what they leave open is planned. Like
            `jax.lax.with_sharding_constraint` in `fun`, they fix the mesh of every stage: its axes
            are those of the user's mesh, while shardc chooses which devices lie where. Arrays that
            arrive in parts ask for their sharding, too, unless shardc gave it to them. Memory kinds
            are kept; layouts in memory are refused.
        device, backend: in the place of `devices`: one device, or all of a platform.
        compiler_options: for XLA, with every program of the plan.
        cluster: what to plan for: a Cluster, the name of a built-in one, or a JSON file; None: the
            JAX devices of this job.
        devices: JAX devices that stand for the cluster's devices, in its order; None: all.
        stages: stages of the pipeline; 1: no pipeline; "auto".
        microbatches: parts into which the batch is cut; "auto".
        schedule: a schedule by name, such as "1f1b" or "zb-v" (docs/schedules.md), or "auto": the
            one with the shortest simulated step, of those that fit.
        chunks: stages on each device group, for schedules that leave it open; "auto".
        mesh: shape of every stage's mesh, such as (2, 4); with names, {"data": 2, "model": 4} or a
            JAX mesh, of which only the axes count; "auto".
        shardings: pattern -> PartitionSpec or NamedSharding of every argument that it fits, such as
            {"params.*.kernel": P(None, "model")}.
        batch_argnums: positions of the arguments that hold the batch in all their leaves but
            scalars; None: found by analysis.
        memory_limit_bytes: per device; None: what the cluster says.
        plan: a Plan or a file with one, instead of planning; or a `shardc.StagesSpec`, a pipeline
            by hand, of which only what it leaves open is planned.
        time_limit_s: for planning.
        seed: of the solver; the same seed gives the same plan.
        equal_layers: "relaxed": in large programs equal layers first share one set of shardings,
            and part where that is needed to come close to the optimum; "tied": they share it in the
            plan, whose notes say what that costs at most; "free": each has its own from the start.
        lowering: "local": shardc's per-device programs; "xla": XLA partitions annotated programs.
        check: "first": the first step of each plan is compared with the same step on one device, in
            its own precision and against float64, and raises CheckError where a result differs; a
            step that one device has no room for, or that calls the host, runs unchecked with a
            RequestWarning; "never".
    Returns:
        A ShardedFunction: callable like `fun`, with `.lower(...)`; `.plan`, `.explain()` and
        `.cache_info()` tell of the plan that runs.
    Raises:
        CheckError: when the function is called: SHARDC-270, see `check`.
        InputError: SHARDC-180, an option has no meaning; 183, `plan` and options that it has
            decided; 185, more than one of `device`, `backend` and `devices`.
    """
    options = plan_options(
        stages=stages,
        microbatches=microbatches,
        schedule=schedule,
        chunks=chunks,
        mesh=mesh,
        memory_limit_bytes=memory_limit_bytes,
        time_limit_s=time_limit_s,
        seed=seed,
        equal_layers=equal_layers,
        lowering=lowering,
    )
    jit_options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    chosen = {"device": device, "backend": backend, "devices": devices}
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise InputError(
            f"{' and '.join(given)} all say where to run",
            help=f"give one of them, such as devices={chosen[given[-1]]!r}",
            code="SHARDC-185",
        )
    if check not in ("never", "first"):
        raise InputError(f"check={check!r} is no way to check", help='check is "never" or "first"')
    batch = (batch_argnums,) if isinstance(batch_argnums, int) else batch_argnums
    request = functools.partial(
        ShardedFunction,
        jit_options=jit_options,
        options=options,
        cluster=resolve_cluster(cluster),
        devices=devices if device is None else (device,),
        backend=backend,
        inline=inline,
        compiler_options=compiler_options,
        shardings=dict(shardings or {}),
        axes=asked_axes(mesh),
        batch_argnums=None if batch is None else tuple(batch),
        plan=given_plan(plan, options),
        check=check,
    )
    return request if fun is None else request(fun)
