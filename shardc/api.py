"""`shardc.jit`: in the place of `jax.jit`, for many devices."""

import functools
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from shardc.aot import Compiled, Lowered, Planned
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.importer.asked_arguments import ask_as_they_lie, ask_by_patterns
from shardc.importer.from_jax import import_function
from shardc.importer.static_arguments import CallArguments, split_static, static_parameters
from shardc.options import PlanOptions
from shardc.plan import Plan
from shardc.request import asked_axes, given_plan, plan_options, resolve_cluster, resolve_devices
from shardc.runtime.gather import gather

__all__ = ["Compiled", "Lowered", "Planned", "ShardedFunction", "gather", "jit"]

MOST_COMPILED = 128  # programs that one function keeps; the one not used for longest goes first


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
    mesh: Any = "auto",
    shardings: Mapping[str, Any] | None = None,
    batch_argnums: int | Sequence[int] | None = None,
    memory_limit_bytes: int | None = None,
    plan: Plan | str | Path | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
    lowering: str = "local",
) -> Any:
    """`fun`, planned and run over many devices.

    The first call with arguments of new types traces `fun`, plans it and compiles it; later calls
    run. Plans are kept on disk (see `shardc.plan_cache`). Without `fun`, a decorator.

    Args:
        fun: a function of pytrees, as `jax.jit` takes it. It may use any library inside.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as of `jax.jit`.
        keep_unused, inline: accepted and without effect: unused arguments go nowhere.
        in_shardings, out_shardings: as of `jax.jit`; what they leave open is planned. Like
            `jax.lax.with_sharding_constraint` in `fun`, they fix the mesh of every stage: its axes
            are those of the user's mesh. Arrays that arrive in parts ask for their sharding, too.
        device, backend, compiler_options: only None; the plan says where values lie.
        cluster: what to plan for: a Cluster, the name of a built-in one, or a JSON file; None: the
            JAX devices of this job.
        devices: JAX devices that stand for the cluster's devices, in its order; None: all.
        stages: stages of the pipeline; 1: no pipeline; "auto".
        microbatches: parts into which the batch is cut; "auto".
        schedule: "gpipe", "1f1b" or "auto".
        mesh: shape of every stage's mesh, such as (2, 4); with names, {"data": 2, "model": 4} or a
            JAX mesh, of which only the axes count; "auto".
        shardings: pattern -> PartitionSpec or NamedSharding of every argument that it fits, such as
            {"params.*.kernel": P(None, "model")}.
        batch_argnums: positions of the arguments that hold the batch in all their leaves but
            scalars; None: found by analysis.
        memory_limit_bytes: per device; None: what the cluster says.
        plan: a Plan or a file with one, instead of planning.
        time_limit_s: for planning.
        seed: of the solver; the same seed gives the same plan.
        lowering: "local": shardc's per-device programs; "xla": XLA partitions annotated programs.
    Returns:
        A ShardedFunction: callable like `fun`, with `.lower(...)`.
    Raises:
        InputError: SHARDC-180, an option has no meaning; 183, `plan` and options that it has
            decided; 185, an argument of `jax.jit` that cannot be honoured.
    """
    refused = {
        "device": device,
        "backend": backend,
        "compiler_options": compiler_options,
    }
    for name, value in refused.items():
        if value is not None:
            raise InputError(
                f"shardc.jit cannot honour {name}={value!r}",
                help=f"leave {name} out: shardc decides where values lie; cluster=, devices= and"
                " mesh= say where it may put them",
                code="SHARDC-185",
            )
    options = plan_options(
        stages=stages,
        microbatches=microbatches,
        schedule=schedule,
        mesh=mesh,
        memory_limit_bytes=memory_limit_bytes,
        time_limit_s=time_limit_s,
        seed=seed,
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
    batch = (batch_argnums,) if isinstance(batch_argnums, int) else batch_argnums
    request = functools.partial(
        ShardedFunction,
        jit_options=jit_options,
        options=options,
        cluster=resolve_cluster(cluster),
        devices=devices,
        shardings=dict(shardings or {}),
        axes=asked_axes(mesh),
        batch_argnums=None if batch is None else tuple(batch),
        plan=given_plan(plan, options),
    )
    return request if fun is None else request(fun)


class ShardedFunction:
    """What `shardc.jit` returns; use that to make one."""

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        jit_options: dict[str, Any],
        options: PlanOptions,
        cluster: Cluster | None,
        devices: Sequence[jax.Device] | None,
        shardings: dict[str, Any],
        axes: tuple[tuple[str, int], ...],
        batch_argnums: tuple[int, ...] | None,
        plan: Plan | None,
    ) -> None:
        if not callable(fun):
            raise InputError(
                f"shardc.jit takes a function, not {fun!r}",
                help="write shardc.jit(step, ...) or @shardc.jit",
            )
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._jit_options = {k: v for k, v in jit_options.items() if v is not None}
        self._options = options
        self._cluster = cluster
        self._devices = devices
        self._shardings, self._axes = shardings, axes
        self._batch_argnums = batch_argnums
        self._plan = plan
        self._static = {name: jit_options[name] for name in ("static_argnums", "static_argnames")}
        self._has_static = any(map(bool, static_parameters(fun, **self._static)))
        self._compiled: OrderedDict[Any, Compiled] = OrderedDict()
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<shardc.jit of {self._fun!r}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method where it is used as one, as `jax.jit`'s functions are."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:
            return self._fun(*args, **kwargs)
        call = self._dynamic(args, kwargs)
        leaves, tree = jax.tree.flatten((call.args, call.kwargs))
        key = (tree, tuple(map(_type_of, leaves)), _static_key(call.static), _config())
        _refuse_tracers(leaves, self._fun)
        compiled = self._find(key, args, kwargs)
        return compiled.call_flat(leaves)

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
        if not self._has_static:
            return CallArguments(args, kwargs, ())
        return split_static(self._fun, args, kwargs, **self._static)

    def _find(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        try:
            known = self._compiled.get(key)
        except TypeError:  # a static value that cannot be hashed: JAX says it better
            return self.lower(*args, **kwargs).compile()
        with self._lock:
            if known is None and (known := self._compiled.get(key)) is None:
                known = self._compiled[key] = self.lower(*args, **kwargs).compile()
                if len(self._compiled) > MOST_COMPILED:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
        return known

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces the function for arguments of these types (arrays or `jax.ShapeDtypeStruct`s).

        Raises:
            ClusterError: SHARDC-101, fewer devices than the cluster has.
            InputError: SHARDC-123, the function talks to the host; 184, called inside another
                transformation; 186, `batch_argnums` names no argument.
            What JAX raises where it cannot trace the function.
        """
        call = self._dynamic(args, kwargs)
        _refuse_tracers(jax.tree.leaves((call.args, call.kwargs)), self._fun)
        cluster, devices = resolve_devices(self._cluster, self._devices)
        imported = import_function(self._fun, args, kwargs, **self._jit_options)
        options = self._options
        ask_by_patterns(imported, self._shardings, self._axes)
        mesh = None if options.mesh == "auto" else options.mesh
        ask_as_they_lie(imported, jax.tree.leaves((call.args, call.kwargs)), mesh)
        if self._batch_argnums is not None:
            positions = self._batch_positions(args, call)
            options = msgspec.structs.replace(options, batch_args=positions)
        return Lowered(imported, cluster, devices, options, self._plan)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the results, without planning or running anything."""
        return jax.jit(self._fun, **self._jit_options).eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets every compiled program; plans on disk stay."""
        with self._lock:
            self._compiled.clear()

    def _batch_positions(self, args: tuple[Any, ...], call: CallArguments) -> tuple[int, ...]:
        """Flat positions of the batch's leaves; scalars have no batch dim and are left out."""
        assert self._batch_argnums is not None
        static = {position for position, _ in call.static if isinstance(position, int)}
        dynamic = [position for position in range(len(args)) if position not in static]
        wanted = set()
        for number in self._batch_argnums:
            position = number + len(args) if number < 0 else number
            if position not in dynamic:
                raise InputError(
                    f"batch_argnums has {number}, and '{getattr(self._fun, '__name__', 'fun')}'"
                    f" was called with {len(dynamic)} positional arguments that are not static",
                    help="count from 0, and pass the batch by position",
                    code="SHARDC-186",
                )
            wanted.add(position)
        found: list[int] = []
        start = 0
        for position, argument in zip(dynamic, call.args, strict=True):
            leaves = jax.tree.leaves(argument)
            if position in wanted:
                found += [start + i for i, leaf in enumerate(leaves) if np.ndim(leaf) > 0]
            start += len(leaves)
        if not found:
            raise InputError(
                f"batch_argnums={self._batch_argnums} names no array with a batch dim",
                help="name the argument that holds the batch",
                code="SHARDC-186",
            )
        return tuple(found)


def _type_of(leaf: Any) -> Any:
    """What of a leaf decides whether another program is needed."""
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, leaf.aval.weak_type
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype, False
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.shape, leaf.dtype, bool(leaf.weak_type)
    return type(leaf)


def _static_key(static: tuple[tuple[int | str, Any], ...]) -> Any:
    # 1, 1.0 and True are equal, but a function may tell them apart.
    return tuple((name, type(value), value) for name, value in static)


def _config() -> tuple[Any, ...]:
    """JAX's settings under which a trace is valid."""
    config = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_numpy_dtype_promotion,
        config.jax_default_prng_impl,
        config.jax_threefry_partitionable,
    )


def _refuse_tracers(leaves: list[Any], fun: Callable[..., Any]) -> None:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        name = getattr(fun, "__name__", repr(fun))
        raise InputError(
            f"shardc.jit's '{name}' was called inside a JAX transformation"
            " (jax.jit, jax.grad, jax.vmap, jax.lax.scan ...)",
            help=f"transform '{name}' first and give the result to shardc.jit: the step from the"
            " outside in, as in shardc.jit(jax.grad(f))",
            code="SHARDC-184",
        )
