"""The stages of `shardc.jit` one by one: Lowered -> Planned -> Compiled."""

import functools
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import jax
import msgspec
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardc import compiler
from shardc.analysis.program.stage_table import maker_of
from shardc.api import plan_cache
from shardc.api.recompile_for_memory import compile_as_planned
from shardc.api.request import check_plan_fits, warn_of_silent_calls, warn_of_unmet
from shardc.backend.meshes import no_context_mesh
from shardc.backend.programs import CompiledProgram
from shardc.backend.stage_text import program_text
from shardc.cluster import Cluster
from shardc.errors import InputError
from shardc.importer.program import Imported
from shardc.ir.bugs import bugs_while
from shardc.ir.copy import copy_module, module_digest
from shardc.ir.effects import hoisted_calls, silent_calls
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable, StageProgram
from shardc.planner.request import print_request
from shardc.planner.search import INTERRUPTED, plan_program
from shardc.planner.user_shardings import asked_prices
from shardc.report.counterfactuals import explained_choices
from shardc.report.summary import explain
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.nan_checks import NotFiniteError
from shardc.solver.interrupt import stoppable

if TYPE_CHECKING:
    from shardc.ir.context import Module

Progress = Callable[[str], None]


def terminal_progress() -> tuple[Progress, Callable[[], None]]:
    """A line on standard error that rewrites itself, and what wipes it; silent off a terminal."""
    if not sys.stderr.isatty():
        return (lambda text: None), (lambda: None)

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[2Kshardc: {text[:100]}")
        sys.stderr.flush()

    def wipe() -> None:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()

    return show, wipe


def find_plan(
    prepared: "Module",
    cluster: Cluster,
    options: PlanOptions,
    *,
    use_cache: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT,),
) -> Plan:
    """The plan of a prepared module: from the disk, or made and kept there.

    An interrupted planning gives the best plan so far, which is not kept.

    Args:
        signals: that interrupt it, on the main thread.
    """
    digest = plan_cache.fingerprint(module_digest(prepared), cluster, options)
    if use_cache and (kept := plan_cache.load(digest)) is not None:
        return kept
    progress, wipe = terminal_progress()
    try:
        request = print_request(cluster, options)
        with stoppable(signals), bugs_while("planning", prepared, request):
            plan = plan_program(prepared, cluster, options, progress)
    finally:
        wipe()
    plan = msgspec.structs.replace(plan, fingerprint=digest)
    if use_cache and INTERRUPTED not in plan.notes:
        plan_cache.store(plan)
    return plan


class Lowered:
    """A traced function as one StableHLO module, not yet planned.

    Attributes:
        imported: the module with its arguments and results.
        cluster: what it will be planned for.
        options: what was asked of the planner.
        in_tree, out_tree, args_info, out_info: as of `jax.stages.Lowered`.
    """

    def __init__(
        self,
        imported: Imported,
        cluster: Cluster,
        devices: Sequence[jax.Device],
        options: PlanOptions,
        plan: Plan | None = None,
        compiler_options: dict[str, Any] | None = None,
    ) -> None:
        self.imported = imported
        self.cluster = cluster
        self.options = options
        self._devices = tuple(devices)
        self._given_plan = plan
        self._compiler_options = compiler_options
        self.in_tree, self.out_tree = imported.in_tree, imported.out_tree
        self.args_info, self.out_info = imported.args_info, imported.out_info

    def as_text(self, *, debug_info: bool = False) -> str:
        """The StableHLO module as JAX lowered it."""
        module = self.imported.module.operation
        return str(module.get_asm(enable_debug_info=debug_info))

    def plan(self) -> "Planned":
        """Chooses microbatches, stages, meshes and shardings, or takes the plan that was given.

        Warns (RequestWarning) where the program cannot be cut as was asked.

        Raises:
            ShardcError: what the planner refuses; SHARDC-200 a given plan is for another program.
        """
        prepared = copy_module(self.imported.module)
        compiler.prepare(prepared)
        plan = self._given_plan or find_plan(prepared, self.cluster, self.options)
        check_plan_fits(plan, self._devices, len(self.imported.arguments))
        with prepared.context:
            silent = silent_calls(prepared.operation)
        warn_of_silent_calls(silent)
        if self._given_plan is None:
            warn_of_unmet(plan)
        return Planned(
            self.imported,
            prepared,
            plan,
            self._devices,
            self.options,
            plan.cluster or self.cluster,
            self._compiler_options,
        )

    def compile(self) -> "Compiled":
        """Plans and compiles."""
        return self.plan().compile()


class Planned:
    """A program and its plan.

    Attributes:
        plan: the decisions; `plan.save(path)` keeps them.
    """

    def __init__(
        self,
        imported: Imported,
        prepared: "Module",
        plan: Plan,
        devices: Sequence[jax.Device],
        options: PlanOptions,
        cluster: Cluster,
        compiler_options: dict[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self._imported = imported
        self._prepared = prepared
        self._devices = tuple(devices)
        self._options, self._cluster = options, cluster
        self._compiler_options = compiler_options

    @functools.cached_property
    def executable(self) -> Executable:
        """The stage programs and the order in which they run."""
        plan = self.plan
        with self._bugs_while("lowering"):
            sharded = compiler.replay(self._prepared, plan)
            return compiler.lower(
                sharded, plan.num_microbatches, plan.schedule, lowering=self._options.lowering
            )

    def explain(self, pattern: str | None = None) -> str:
        """The plan as a table for people; with a pattern, why what it fits is sharded as it is.

        Args:
            pattern: of an argument's name (`params.*.kernel`), or of an op's name or place
                (`dot_general`, `train.py:41`).
        Raises:
            InputError: SHARDC-180, the pattern fits nothing.
        """
        with self._bugs_while("explaining a plan"):
            if pattern is None:
                return explain(self.plan, self.executable)
            return explained_choices(self._prepared, self.plan, self._cluster, pattern)

    def sharding_prices(self) -> dict[str, float]:
        """What each sharding that was asked for costs, in predicted seconds per step.

        By who asks: a pattern, an argument or result, the source position of a constraint. The
        pipeline of the plan is solved again without each of them.
        """
        with self._bugs_while("pricing shardings"):
            return asked_prices(self._prepared, self.plan, self._cluster, self._options)

    def as_text(self, stage: int | None = None) -> str:
        """MLIR of the programs of `stage` (of all stages for None)."""
        return "\n".join(
            f"// {program.name}\n{program_text(program)}"
            for program in _of_stage(self.executable.programs, stage)
        )

    def compile(self) -> "Compiled":
        """Has XLA compile every stage program for its devices."""
        # What XLA says of the user's compiler options is no bug of ours.
        but = (Exception,) if self._compiler_options else ()
        with self._bugs_while("compiling", but), no_context_mesh():
            programs = compile_as_planned(
                self.executable,
                self.plan,
                self._devices,
                self._compiler_options,
                self._imported.host_calls,
                self._options.memory_limit_bytes or self._cluster.device.memory_bytes,
            )
            with self._prepared.context:
                host_calls = hoisted_calls(self._prepared.operation)
            compiled = Compiled(self._imported, self.plan, self.executable, programs, host_calls)
            compiled.maker_of = self._maker_of
            return compiled

    def _maker_of(self, program: str, value: str) -> str | None:
        sharded = compiler.replay(self._prepared, self.plan)
        with sharded.context:
            return maker_of(sharded.operation, program, value)

    def _bugs_while(
        self, doing: str, but: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        request = print_request(self._cluster, self._options)
        return bugs_while(doing, self._prepared, request, but)


class Compiled:
    """A step ready to run: `compiled(*args, **kwargs)`, without the static arguments.

    If a call is left by an exception (Ctrl-C, a NaN under `jax_debug_nans`, an error in a callback)
    after the update has begun, `unreturned_results` has the results in place of donated arguments
    that are gone.

    Attributes:
        plan: the decisions behind it.
        executable: the stage programs as MLIR, and the order in which they run.
        programs: the same compiled.
        interpreter: runs flat lists of arrays; its `last_trace` tells the order of dispatch.
        maker_of: the op behind a result of a stage program, and its place in the source.
    """

    def __init__(
        self,
        imported: Imported,
        plan: Plan,
        executable: Executable,
        programs: Sequence[CompiledProgram],
        host_calls: Sequence[tuple[int, Sequence[int]]] = (),
    ) -> None:
        assert imported.in_tree is not None and imported.out_tree is not None
        self.in_tree = imported.in_tree
        self.out_tree = imported.out_tree
        self.plan = plan
        self.executable = executable
        self.programs = tuple(programs)
        self.interpreter = Interpreter(executable, self.programs)
        self._keys_in = _positions(imported.arguments, "key_impl")
        self._keys_out = tuple(
            (i, imported.results[i].key_impl) for i in _positions(imported.results, "key_impl")
        )
        self._weak_out = _positions(imported.results, "weak_type")
        self._weaken: dict[int, jax.stages.Compiled] = {}
        self._num_results = len(imported.results)
        self._host_calls = [(imported.host_calls[index], taken) for index, taken in host_calls]
        self._unheard: list[jax.Array] | None = None  # results while callbacks run
        self.maker_of: Callable[[str, str], str | None] = lambda program, value: None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = jax.tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise InputError(
                f"the arguments are {in_tree}; the step was compiled for {self.in_tree}",
                help="pass the same pytrees, without static arguments, or lower again",
                code="SHARDC-263",
            )
        return self.call_flat(leaves)

    def call_flat(self, leaves: list[Any]) -> Any:
        """One step on the leaves of `(args, kwargs)`."""
        for i in self._keys_in:
            leaves[i] = jax.random.key_data(leaves[i])
        with no_context_mesh():
            try:
                with bugs_while("running a step", but=(RuntimeError, FloatingPointError)):
                    results = self.interpreter(leaves)  # these are JAX's and XLA's
            except NotFiniteError as error:
                made = self.maker_of(error.program, error.value)
                raise FloatingPointError(
                    f"{error}, made by {made}" if made else str(error)
                ) from None
            if self._host_calls:
                self._unheard = results
                for callback, taken in self._host_calls:
                    callback(*(np.asarray(results[i]) for i in taken))
                self._unheard = None
            return self._results(results)

    @property
    def unreturned_results(self) -> Any:
        """Results of a step that an exception kept from returning; None otherwise."""
        results = self._unheard or self.interpreter.unreturned_results
        return None if results is None else self._results(list(results))

    def _results(self, results: list[Any]) -> Any:
        results = results[: self._num_results]
        for i in self._weak_out:
            results[i] = self._as_weak(i, results[i])
        for i, impl in self._keys_out:
            results[i] = jax.random.wrap_key_data(_unsplit(results[i]), impl=impl)
        return jax.tree.unflatten(self.out_tree, results)

    def _as_weak(self, index: int, value: jax.Array) -> jax.Array:
        """The same buffer as an array of weak type, as `jax.jit` returns it.

        Without this a step count that began as a Python 0 would come back as another type, and the
        second call would trace and plan again.
        """
        call = self._weaken.get(index)
        if call is None:
            aval = jax.ShapeDtypeStruct(
                value.shape, value.dtype, sharding=value.sharding, weak_type=True
            )
            call = jax.jit(lambda x: x, donate_argnums=0).lower(aval).compile()
            self._weaken[index] = call
        weak: jax.Array = call(value)
        return weak

    def as_text(self, stage: int | None = None) -> str:
        """Optimised HLO of the programs of `stage` (of all stages for None)."""
        names = {program.name for program in _of_stage(self.executable.programs, stage)}
        texts = self.hlo_texts()
        return "\n".join(f"// {name}\n{texts[name]}" for name in texts if name in names)

    def hlo_texts(self) -> dict[str, str]:
        """Optimised HLO by name of the stage program."""
        return {p.program.name: p.call.as_text() or "" for p in self.programs}

    def cost_analysis(self) -> dict[str, Any]:
        """What XLA counts for one call of each stage program on one device, by its name."""
        return {p.program.name: p.call.cost_analysis() for p in self.programs}

    def memory_analysis(self) -> dict[str, Any]:
        """XLA's memory statistics of each stage program on one device, by its name."""
        return {p.program.name: p.call.memory_analysis() for p in self.programs}


def _unsplit(data: jax.Array) -> jax.Array:
    """The numbers of keys with each key on one device: JAX has no keys that are split inside."""
    lies = data.sharding
    if lies.shard_shape(data.shape)[-1] == data.shape[-1]:
        return data
    assert isinstance(lies, NamedSharding), lies
    whole: jax.Array = jax.device_put(
        data, NamedSharding(lies.mesh, PartitionSpec(*lies.spec[:-1]))
    )
    return whole


def _positions(entries: Sequence[Any], field: str) -> tuple[int, ...]:
    return tuple(i for i, entry in enumerate(entries) if getattr(entry, field))


def _of_stage(programs: Sequence[StageProgram], stage: int | None) -> list[StageProgram]:
    return [program for program in programs if stage is None or program.stage == stage]
