"""The compiled programs of a plan, called with the user's pytrees."""

import copy
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardc.api.request import check_stage
from shardc.api.state.abstract import PlacedSignature, Places, place_of_value
from shardc.api.telling.told import Told
from shardc.api.telling.tracing import note_step
from shardc.backend.programs import CompiledProgram
from shardc.check.first_step import check_first_step
from shardc.errors import InputError
from shardc.importer.program import Imported
from shardc.ir.bugs import bugs_while
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.interrupts import deferred_interrupt
from shardc.runtime.nan_checks import NotFiniteError
from shardc.runtime.processes.arrays import in_memory, is_here
from shardc.runtime.processes.job import is_several
from shardc.runtime.user_places import UserShardings


class Compiled(PlacedSignature, Told):
    """A step ready to run: `compiled(*args, **kwargs)`, without the static arguments.

    If an exception (Ctrl-C, a NaN under `jax_debug_nans`, an error in a callback) ends a call
    after the update has begun, `unreturned_results` holds the results that replace donated
    arguments.

    Attributes:
        plan: the decisions behind it.
        executable: the stage programs as MLIR, and the order in which they run.
        programs: the compiled stage programs.
        interpreter: runs flat lists of arrays; its `last_trace` has the order of dispatch.
        maker_of: the op that defines a result of a stage program, and its source position.
        program: the key of the Lowered it was compiled from.
        in_tree, out_tree, args_info, out_info: as in `Signature`.
    """

    def __init__(
        self,
        imported: Imported,
        plan: Plan,
        executable: Executable,
        programs: Sequence[CompiledProgram],
        host_calls: Sequence[tuple[int, Sequence[int]]] = (),
        program: Hashable = None,
        explain: Callable[..., str] | None = None,
    ) -> None:
        super().__init__(imported)
        self.plan = plan
        self.executable = executable
        self.programs = tuple(programs)
        self.interpreter = Interpreter(executable, self.programs)
        self._run_next: Callable[..., list[Any]] | None = None  # replaces the interpreter once
        self._weaken: dict[int, jax.stages.Compiled] = {}
        self._host_calls = [(imported.host_calls[index], taken) for index, taken in host_calls]
        self._unheard: list[jax.Array] | None = None  # flat results that the user has not got yet
        self._told: tuple[list[jax.Array], Any] | None = None  # these, and the pytree made of them
        self.maker_of: Callable[[str, str], str | None] = lambda program, value: None
        self.program = program
        self._explain = explain
        self._take_types(imported)

    def __repr__(self) -> str:
        return f"<shardc.Compiled {self._signature()}; {self.plan}; {len(self.programs)} programs>"

    def _take_types(self, imported: Imported) -> None:
        PlacedSignature.__init__(self, imported)
        self._keys_in = _positions(imported.arguments, "key_impl")
        self._keys_out = tuple(
            (i, imported.results[i].key_impl) for i in _positions(imported.results, "key_impl")
        )
        self._weak_out = _positions(imported.results, "weak_type")
        self._memory_out = tuple(
            (i, imported.results[i].memory_kind)
            for i in _positions(imported.results, "memory_kind")
        )
        self._num_results = len(imported.results)

    def with_types_of(self, imported: Imported) -> "Compiled":
        """The same programs for a trace of the same `program` with other weak types."""
        other = copy.copy(self)
        for name in ("input_shardings", "output_shardings"):
            other.__dict__.pop(name, None)
        other._take_types(imported)
        return other

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
        self._unheard = self._told = None
        with no_context_mesh():
            for i in self._keys_in:
                leaves[i] = jax.random.key_data(leaves[i])
            run, self._run_next = self._run_next or self.interpreter, None
            note_step(self.plan)
            try:
                # Errors of JAX and XLA; XLA reports a broken connection as a ValueError.
                but = (RuntimeError, FloatingPointError, *([ValueError] if is_several() else []))
                with bugs_while("running a step", but=but):
                    results = run(leaves)
            except NotFiniteError as error:
                made = self.maker_of(error.program, error.value)
                raise FloatingPointError(
                    f"{error}, made by {made}" if made else str(error)
                ) from None
            self._unheard = results
            self.interpreter.unreturned_results = None
            for callback, taken in self._host_calls:
                callback(*(np.asarray(results[i]) for i in taken))
            with deferred_interrupt():
                told = self._results(list(results))
                self._told = results, told
            self._unheard = self._told = None
            return told

    def check_next_step(self, device: jax.Device, memory_bytes: int) -> None:
        """Compares the next step with the same step on `device`, which has this much memory.

        That step raises CheckError (SHARDC-270) if a result differs; see
        `shardc.check.first_step`.
        """

        def run(leaves: list[Any]) -> list[Any]:
            step = functools.partial(self.interpreter, leaves)
            return check_first_step(
                self._imported, self.plan, step, list(leaves), device, memory_bytes
            )

        self._run_next = run

    @property
    def unreturned_results(self) -> Any:
        """Results of a step that an exception interrupted; None otherwise."""
        results = self._unheard or self.interpreter.unreturned_results
        if results is None:
            return None
        # Weakly typed arrays take over the buffers, so this works only once.
        if self._told is None or self._told[0] is not results:
            self._told = results, self._results(list(results))
        return self._told[1]

    def _results(self, results: list[Any]) -> Any:
        results = results[: self._num_results]
        for i in self._weak_out:
            if not is_here(results[i].sharding):
                continue  # weakly typed or not, it only aliases a value held elsewhere
            results[i] = self._as_weak(i, results[i])
        for i, kind in self._memory_out:
            results[i] = in_memory(results[i], kind)
        for i, impl in self._keys_out:
            results[i] = jax.random.wrap_key_data(_unsplit(results[i]), impl=impl)
        return jax.tree.unflatten(self.out_tree, results)

    def _as_weak(self, index: int, value: jax.Array) -> jax.Array:
        """The same buffer as a weakly typed array, as `jax.jit` returns it.

        Otherwise a step count that began as a Python 0 would come back with another type, and the
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
        self.interpreter.passed_on(value, weak)
        return weak

    @functools.cached_property
    def input_shardings(self) -> Any:
        """A pytree like `(args, kwargs)`: an array with this sharding is used without a copy.

        For the batch, which is first split into microbatches, the sharding it is moved to. None if
        no program reads the argument.
        """
        places = self._user_shardings.arguments[: len(self._imported.arguments)]
        return jax.tree.unflatten(
            self.in_tree, list(map(place_of_value, self._imported.arguments, places))
        )

    @functools.cached_property
    def output_shardings(self) -> Any:
        """A pytree like the results: their shardings; None for an argument returned unchanged."""
        places = self._user_shardings.results[: self._num_results]
        return jax.tree.unflatten(
            self.out_tree, list(map(place_of_value, self._imported.results, places))
        )

    def _argument_places(self) -> Places:
        return self._user_shardings.arguments[: len(self._imported.arguments)]

    @functools.cached_property
    def _user_shardings(self) -> UserShardings:
        with no_context_mesh():
            return self.interpreter.user_shardings()

    def explain(self, pattern: str | None = None) -> str:
        """As `Planned.explain`."""
        assert self._explain is not None, "compiled from a plan"
        return self._explain(pattern)

    def as_text(self, stage: int | None = None) -> str:
        """Optimised HLO of the programs of `stage` (of all stages if None)."""
        check_stage(stage, self.executable)
        names = {program.name for program in self.executable.of_stage(stage)}
        texts = self.hlo_texts()
        return "\n".join(f"// {name}\n{texts[name]}" for name in texts if name in names)

    def hlo_texts(self) -> dict[str, str]:
        """Optimised HLO by name of the stage program."""
        return {p.program.name: p.call.as_text() or "" for p in self.programs}

    def cost_analysis(self) -> dict[str, Any]:
        """XLA's cost analysis for one call of each stage program on one device, by its name."""
        return {p.program.name: p.call.cost_analysis() for p in self.programs}

    def memory_analysis(self) -> dict[str, Any]:
        """XLA's memory statistics of each stage program on one device, by its name."""
        return {p.program.name: p.call.memory_analysis() for p in self.programs}


def _unsplit(data: jax.Array) -> jax.Array:
    """The numbers of keys, each key whole on one device: JAX cannot split inside a key."""
    sharding = data.sharding
    if sharding.shard_shape(data.shape)[-1] == data.shape[-1]:
        return data
    assert isinstance(sharding, NamedSharding), sharding
    whole: jax.Array = jax.device_put(
        data, NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:-1]))
    )
    return whole


def _positions(entries: Sequence[Any], field: str) -> tuple[int, ...]:
    return tuple(i for i, entry in enumerate(entries) if getattr(entry, field))
