"""The result of `shardc.jit`: traces, plans and compiles for new argument types, then runs."""

import functools
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import msgspec

from shardc.api.asked_devices import check_asked_devices, devices_of, resolve_devices
from shardc.api.batch_positions import batch_positions
from shardc.api.call_types import key_of_call, program_of
from shardc.api.compiled import Compiled
from shardc.api.processes.feeding import is_fed
from shardc.api.request import jax_jitted
from shardc.api.stages import Lowered
from shardc.backend.programs import lowering_platform
from shardc.cluster import Cluster
from shardc.errors import InputError, RequestWarning
from shardc.importer.from_jax import import_function, is_importing
from shardc.importer.requested_shardings import (
    constrain_as_planned,
    constrain_by_patterns,
    constrain_to_placements,
    write_arrivals,
)
from shardc.importer.static_arguments import CallArguments, split_static, static_parameters
from shardc.ir.bugs import bugs_while
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import StagesSpec
from shardc.progress import shown_progress
from shardc.runtime.arguments.place import check_usable

MOST_COMPILED = 128  # programs per function; the least recently used one is evicted first


class CacheInfo(NamedTuple):
    """Statistics of a `shardc.jit` function.

    Attributes:
        calls: calls that ran, or failed.
        traces: calls with argument types not seen before.
        programs: planned, compiled and cached; traces that differ only in weak types share one.
        most_programs: capacity; beyond it, the least recently used program is evicted.
    """

    calls: int
    traces: int
    programs: int
    most_programs: int


class ShardedFunction:
    """The result of `shardc.jit`, which constructs it."""

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
        plan: Plan | StagesSpec | None,
        check: str,
        beside: bool,
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
        self._check, self._beside = check, beside
        self._part = jax_jitted(fun, **self._jit_options, inline=inline)
        self._static = {name: jit_options[name] for name in ("static_argnums", "static_argnames")}
        self._has_static = any(map(bool, static_parameters(fun, **self._static)))
        self._compiled: OrderedDict[Any, Compiled] = OrderedDict()  # by program, in order of use
        self._by_types: dict[Any, Compiled] = {}
        self._calls = self._traced = 0
        self._lock = threading.RLock()

    @property
    def _name(self) -> str:
        return getattr(self._fun, "__name__", None) or repr(self._fun)

    @property
    def jitted(self) -> Any:
        """The function under `jax.jit`, with unused arguments kept."""
        return jax.jit(self._fun, **self._jit_options, keep_unused=True)

    def __repr__(self) -> str:
        name = getattr(self._fun, "__qualname__", None) or repr(self._fun)
        plans = [str(each.plan) for each in self._compiled.values()]
        return f"<shardc.jit of {name}; {'; '.join(plans) or 'not planned'}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds as a method, like functions of `jax.jit`."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:
            return self._fun(*args, **kwargs)
        call = self._dynamic(args, kwargs)
        leaves, tree = jax.tree.flatten((call.args, call.kwargs))
        if is_importing() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._as_part(args, kwargs)
        key = key_of_call(tree, leaves, call.static)
        self._calls += 1
        with jax.core.eval_context():  # even while a transformation traces something else
            traced = self._traced
            compiled = self._find(key, args, kwargs)
            if self._traced == traced:
                return compiled.call_flat(leaves)
            with shown_progress(f"running '{self._name}' for the first time", users=True):
                return compiled.call_flat(leaves)

    def _as_part(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside a function that JAX transforms: inlined into it, as a `jax.jit` function is."""
        if not is_importing():
            warnings.warn(
                f"'{self._name}' is called inside another"
                " transformation of JAX (jax.jit, jax.grad, jax.vmap, ...) and becomes a part of"
                " it, without a plan: give the outermost function to shardc.jit",
                RequestWarning,
                skip_file_prefixes=(str(Path(__file__).parent), str(Path(jax.__file__).parent)),
            )
        return self._part(*args, **kwargs)

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
        if not self._has_static:
            return CallArguments(args, kwargs, ())
        return split_static(self._fun, args, kwargs, **self._static)

    def _find(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        try:
            hash(key)
        except TypeError:  # an unhashable static value: JAX has the better message
            return self._make(args, kwargs)
        with self._lock:
            known = self._by_types.get(key)
            if known is None:
                known = self._by_types[key] = self._make(args, kwargs)
            self._compiled.move_to_end(known.program)
        return known

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        """Compiles for such a call; refuses arguments that no step takes first."""
        lowered = self.lower(*args, **kwargs)
        call = self._dynamic(args, kwargs)
        check_usable(lowered.imported.arguments, jax.tree.leaves((call.args, call.kwargs)))
        return self._compile(lowered)

    def _compile(self, lowered: Lowered) -> Compiled:
        """Compiles `lowered`; calls that differ only in weak types usually share the programs.

        A step count may start as a Python 0 and return as an array that is not weakly typed.
        `jax.jit` then compiles twice; here one plan is enough if both traces are the same program.
        """
        self._traced += 1
        same = self._compiled.get(lowered.program)
        if same is not None:
            return same.with_types_of(lowered.imported)
        compiled = self._compiled[lowered.program] = lowered.compile()
        if self._check == "first":
            here = jax.process_index()
            own = next(device for device in lowered.devices if device.process_index == here)
            compiled.check_next_step(own, lowered.cluster.device.memory_bytes)
        if len(self._compiled) > MOST_COMPILED:
            forgotten, _ = self._compiled.popitem(last=False)
            self._by_types = {
                key: each for key, each in self._by_types.items() if each.program != forgotten
            }
        return compiled

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces the function for arguments of these types (arrays or `jax.ShapeDtypeStruct`s).

        The cluster may have more devices than available: planning needs none of them. If such a
        call has run, its plan is used.

        Raises:
            InputError: SHARDC-123, the function calls the host; 186, `batch_argnums` does not name
                a batch; 205, a sharding names other devices, or a memory layout.
            Whatever JAX raises if it cannot trace the function.
        """
        call = self._dynamic(args, kwargs)
        leaves, tree = jax.tree.flatten((call.args, call.kwargs))
        running = self._running_plan(key_of_call(tree, leaves, call.static))
        devices = self._devices if self._backend is None else devices_of(self._backend)
        cluster, devices = resolve_devices(self._cluster, devices)
        asked = [self._jit_options.get(name) for name in ("in_shardings", "out_shardings")]
        check_asked_devices(asked, devices)
        platform = lowering_platform(devices[0])
        with shown_progress(f"tracing '{self._name}'", users=True):
            imported = import_function(
                self._fun, args, kwargs, platform=platform, **self._jit_options
            )
        program = program_of(imported)
        options = self._options
        mesh = None if options.mesh == "auto" else options.mesh
        with bugs_while("reading shardings", imported.module):
            placed = [None if is_fed(leaf) else leaf for leaf in leaves]
            if isinstance(running, Plan):
                axes = self._axes or running.stages[0].mesh.axes
                constrain_by_patterns(imported, self._shardings, axes)
                constrain_as_planned(imported, running)
            else:
                constrain_by_patterns(imported, self._shardings, self._axes)
                constrain_to_placements(imported, placed, mesh)
            write_arrivals(imported, placed, devices)
        if self._batch_argnums is not None:
            positions = batch_positions(self._name, self._batch_argnums, len(args), call)
            options = msgspec.structs.replace(options, batch_args=positions)
        return Lowered(
            imported,
            cluster,
            devices,
            options,
            running,
            self._compiler_options,
            program,
            self._beside,
        )

    def warm_up(self, *args: Any, **kwargs: Any) -> Compiled:
        """Plans and compiles for arguments of these types, so that such a call runs at once.

        The plan is cached on disk, and so are the programs if JAX has a persistent compilation
        cache (`jax_compilation_cache_dir`): the next process finds both.

        Args:
            args, kwargs: of a call. Only their types count, and the placement of arrays that a plan
                has placed. `jax.ShapeDtypeStruct`s (`jax.eval_shape`, `abstract_state`) will do.
        Returns:
            The compiled step of such calls.
        Raises:
            ShardcError: what the first call would raise.
        """
        call = self._dynamic(args, kwargs)
        leaves, tree = jax.tree.flatten((call.args, call.kwargs))
        return self._find(key_of_call(tree, leaves, call.static), args, kwargs)

    @property
    def plan(self) -> Plan:
        """The current plan: that of the most recent call.

        Raises:
            InputError: SHARDC-188, the function was not called yet.
        """
        return self._running().plan

    def explain(self, pattern: str | None = None) -> str:
        """The current plan in words; see `Planned.explain`.

        Raises:
            InputError: SHARDC-188, the function was not called yet; 180, the pattern has no match.
        """
        return self._running().explain(pattern)

    def abstract_state(self, argnums: int | Sequence[int] | None = None) -> Any:
        """Shapes, dtypes and shardings of the state under the current plan; as in `Planned`.

        Raises:
            InputError: SHARDC-188, the function was not called yet; 180, there is no state.
        """
        return self._running().abstract_state(argnums)

    def cache_info(self) -> CacheInfo:
        """The numbers of calls, traces and programs."""
        with self._lock:
            return CacheInfo(self._calls, self._traced, len(self._compiled), MOST_COMPILED)

    def _running_plan(self, key: Any) -> Plan | StagesSpec | None:
        """The plan that such a call already runs under; else the one the user gave, if any."""
        try:
            known = self._by_types.get(key)
        except TypeError:  # a static value that cannot be hashed
            known = None
        return self._plan if known is None else known.plan

    def _running(self) -> Compiled:
        with self._lock:
            if not self._compiled:
                raise InputError(
                    f"'{self._name}' has no plan before its first call",
                    help="call it, or plan without running: f.lower(...).plan()",
                    code="SHARDC-188",
                )
            return next(reversed(self._compiled.values()))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the results, without planning or running anything."""
        return self._part.eval_shape(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """The result of `jax.jit(fun).trace`: the jaxpr, its types and effects."""
        traced: jax.stages.Traced = self._part.trace(*args, **kwargs)
        return traced

    def clear_cache(self) -> None:
        """Forgets every compiled program; plans on disk stay."""
        with self._lock:
            self._compiled.clear()
            self._by_types.clear()
