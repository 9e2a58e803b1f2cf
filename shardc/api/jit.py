"""`shardc.jit`: replaces `jax.jit`, for many devices."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from shardc.api.asked_devices import given_devices
from shardc.api.batch_positions import given_argnums
from shardc.api.compiled import Compiled
from shardc.api.function import ShardedFunction
from shardc.api.request import (
    asked_axes,
    given_compiler_options,
    given_plan,
    given_shardings,
    plan_options,
    resolve_cluster,
)
from shardc.api.stages import Lowered, Planned
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.options import TIME_LIMIT_S
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
    slices: Any = "auto",
    mesh: Any = "auto",
    shardings: Mapping[str, Any] | None = None,
    batch_argnums: int | Sequence[int] | None = None,
    memory_limit_bytes: int | None = None,
    plan: Plan | StagesSpec | str | Path | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    seed: int = 0,
    equal_layers: str = "relaxed",
    lowering: str = "local",
    early_updates: bool = False,
    check: str = "never",
    beside: bool = False,
) -> Any:
    """`fun`, planned for and run on many devices.

    The first call with new argument types traces, plans and compiles `fun`; later calls only
    run. Plans are cached on disk (`shardc.api.planning.plan_cache`). Without `fun`, a decorator.

    Args:
        fun: a function of pytrees, as for `jax.jit`. It may use any library.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as in `jax.jit`.
        keep_unused: accepted without effect: unused arguments are not sent anywhere.
        inline: as in `jax.jit`, when another transformation calls the function.
        in_shardings, out_shardings: as in `jax.jit`; shardc plans what they leave open. Like
            `jax.lax.with_sharding_constraint` in `fun`, they fix the mesh of every stage: it has
            the axes of the user's mesh, while shardc chooses the order of devices. Sharded input
            arrays request their sharding, too, unless shardc placed them. Memory kinds
            are respected; memory layouts are refused.
        device, backend: instead of `devices`: one device, or all of a platform.
        compiler_options: for XLA, with every program of the plan.
        cluster: the cluster to plan for: a Cluster, a built-in name, or a JSON file; None: the
            JAX devices of this job.
        devices: JAX devices that represent the cluster's devices, in its order; None: all.
        stages: number of pipeline stages; 1: no pipeline; "auto".
        microbatches: number of microbatches; "auto".
        schedule: name of a schedule, such as "1f1b" or "zb-v" (docs/schedules.md), or "auto": the
            one with the shortest simulated step among those that fit.
        chunks: stages per device group, for schedules that leave it open; "auto".
        slices: parts of each sequence, for schedules that cut them (terapipe, seq1f1b); "auto": 2.
            With schedule="auto", a number above 1 leaves the choice among these schedules.
        mesh: shape of every stage's mesh, such as (2, 4); with names, {"data": 2, "model": 4} or a
            JAX mesh, of which only the axes count; "auto".
        shardings: pattern -> PartitionSpec or NamedSharding of every matching argument, such as
            {"params.*.kernel": P(None, "model")}.
        batch_argnums: positions of the arguments whose leaves, except scalars, hold the batch;
            None: found by analysis.
        memory_limit_bytes: per device; None: the cluster's.
        plan: a Plan or a plan file, instead of planning; or a `shardc.StagesSpec`, a hand-written
            plan, of which shardc plans only what it leaves open.
        time_limit_s: for planning.
        seed: of the solver; the same seed gives the same plan.
        equal_layers: "relaxed": in large programs equal layers first share one set of shardings,
            and differ where this brings the plan closer to the optimum; "tied": they share it in
            the plan, whose notes bound the cost; "free": each has its own from the start.
        lowering: "local": shardc's per-device programs; "xla": XLA partitions annotated programs.
        early_updates: True: a stage updates its state as soon as its own last action is dispatched.
            A step that fails behind that may have consumed donated arguments of some stages. A
            global norm holds all updates back until it is known. False: behind all other actions
            (docs/state.md).
        check: "first": compares the first step of each plan with the same step on one device, in
            its own precision and against float64, and raises CheckError if a result differs; a
            step that does not fit on one device, or that calls the host, runs unchecked with a
            RequestWarning; "never".
        beside: also plan what a person would write by hand (data parallel, ZeRO-1, FSDP, tensor
            parallel, several in stages), for `.explain()`, `.report()` and the plan file. It takes
            a few times as long as planning; once, because it is cached with the plan.
    Returns:
        A ShardedFunction: callable like `fun`, with `.lower(...)`; `.plan`, `.explain()` and
        `.cache_info()` describe the current plan.
    Raises:
        CheckError: when the function is called: SHARDC-270, see `check`.
        InputError: SHARDC-180, an option is invalid; 183, `plan` with options that it
            decides; 185, more than one of `device`, `backend` and `devices`.
    """
    options = plan_options(
        stages=stages,
        microbatches=microbatches,
        schedule=schedule,
        chunks=chunks,
        slices=slices,
        mesh=mesh,
        memory_limit_bytes=memory_limit_bytes,
        time_limit_s=time_limit_s,
        seed=seed,
        equal_layers=equal_layers,
        lowering=lowering,
        early_updates=early_updates,
    )
    jit_options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    platform: object = backend
    if not isinstance(platform, str | None):
        raise InputError(
            f"backend={backend!r} is not the name of a platform", help='such as "cpu" or "gpu"'
        )
    chosen = {"device": device, "backend": backend, "devices": devices}
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise InputError(
            f"{' and '.join(given)} all say where to run",
            help=f"give one of them, such as devices={chosen[given[-1]]!r}",
            code="SHARDC-185",
        )
    asked: object = check
    if not (isinstance(asked, str) and asked in ("never", "first")):
        raise InputError(f"check={check!r} is not a check", help='check is "never" or "first"')
    wanted: object = beside
    if not isinstance(wanted, bool):
        raise InputError(f"beside={wanted!r} is neither True nor False", help="give one of them")
    asked_shardings = given_shardings(shardings)
    request = functools.partial(
        ShardedFunction,
        jit_options=jit_options,
        options=options,
        cluster=resolve_cluster(cluster),
        devices=given_devices(devices if device is None else (device,)),
        backend=backend,
        inline=inline,
        compiler_options=given_compiler_options(compiler_options),
        shardings=asked_shardings,
        axes=asked_axes(mesh),
        batch_argnums=None if batch_argnums is None else given_argnums(batch_argnums),
        plan=given_plan(plan, options, asked_shardings),
        check=check,
        beside=beside,
    )
    return request if fun is None else request(fun)
