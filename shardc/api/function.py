"""What `shardc.jit` returns: traces, plans and compiles for new types of arguments, then runs."""

import functools
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from shardc.api.request import resolve_devices
from shardc.api.stages import Compiled, Lowered
from shardc.backend.programs import lowering_platform
from shardc.cluster import Cluster
from shardc.errors import InputError, RequestWarning
from shardc.importer.from_jax import import_function, is_importing
from shardc.importer.static_arguments import CallArguments, split_static, static_parameters
from shardc.importer.user_shardings import ask_as_they_lie, ask_by_patterns
from shardc.ir.bugs import bugs_while
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan

MOST_COMPILED = 128  # programs that one function keeps; the one not used for longest goes first


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
        backend: str | None,
        inline: Any,
        compiler_options: dict[str, Any] | None,
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
        self._backend = backend
        self._compiler_options = compiler_options
        self._shardings, self._axes = shardings, axes
        self._batch_argnums = batch_argnums
        self._plan = plan
        self._part = jax.jit(fun, **{**self._jit_options, "inline": inline})
        self._static = {name: jit_options[name] for name in ("static_argnums", "static_argnames")}
        self._has_static = any(map(bool, static_parameters(fun, **self._static)))
        self._compiled: OrderedDict[Any, Compiled] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def jitted(self) -> Any:
        """The same by `jax.jit`, with every argument kept."""
        return jax.jit(self._fun, **self._jit_options, keep_unused=True)

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
        if is_importing() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._as_part(args, kwargs)
        key = (tree, tuple(map(_type_of, leaves)), _static_key(call.static), _config())
        with jax.core.eval_context():  # also where a transformation is tracing something else
            return self._find(key, args, kwargs).call_flat(leaves)

    def _as_part(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside a function that JAX transforms: a part of it, as `jax.jit`'s would be."""
        if not is_importing():
            warnings.warn(
                f"'{getattr(self._fun, '__name__', self._fun)}' is called inside another"
                " transformation of JAX (jax.jit, jax.grad, jax.vmap, ...) and becomes a part of"
                " it, without a plan: give the outermost function to shardc.jit",
                RequestWarning,
                skip_file_prefixes=(str(Path(__file__).parent),),
            )
        return self._part(*args, **kwargs)

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
            InputError: SHARDC-123, the function talks to the host; 186, `batch_argnums` names no
                argument.
            What JAX raises where it cannot trace the function.
        """
        call = self._dynamic(args, kwargs)
        devices = self._devices if self._backend is None else jax.devices(self._backend)
        cluster, devices = resolve_devices(self._cluster, devices)
        imported = import_function(
            self._fun, args, kwargs, platform=lowering_platform(devices[0]), **self._jit_options
        )
        options = self._options
        mesh = None if options.mesh == "auto" else options.mesh
        with bugs_while("reading shardings", imported.module):
            ask_by_patterns(imported, self._shardings, self._axes)
            ask_as_they_lie(imported, jax.tree.leaves((call.args, call.kwargs)), mesh)
        if self._batch_argnums is not None:
            positions = self._batch_positions(args, call)
            options = msgspec.structs.replace(options, batch_args=positions)
        return Lowered(imported, cluster, devices, options, self._plan, self._compiler_options)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the results, without planning or running anything."""
        return self._part.eval_shape(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """What `jax.jit(fun).trace` gives: the jaxpr, its types and effects."""
        return self._part.trace(*args, **kwargs)

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
