"""Run a step: all stages of all actions, dispatched by one process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from shardc.plan.executable import Executable
from shardc.plan.layout import TensorSharding
from shardc.plan.value_id import is_argument, value_id
from shardc.runtime.interrupts import deferred_interrupt
from shardc.runtime.nan_checks import check_values, wanted_checks
from shardc.runtime.placement import ArgumentPlacer
from shardc.runtime.programs import Call, Program
from shardc.runtime.stacks import Stacks
from shardc.runtime.tape import Instruction, Slot, build_tape
from shardc.runtime.transfers import Transfer, Transfers
from shardc.runtime.user_shardings import UserShardings, argument_places, result_places

Environment = list[Any]


@dataclass(frozen=True, slots=True)
class _Moves:
    """Plain copies go in one `device_put`; the others are transfers of several steps."""

    sources: list[int]
    targets: list[int]
    shardings: list[NamedSharding]
    others: list[tuple[int, int, Transfer]]

    def run(self, env: Environment) -> None:
        if self.sources:
            copies = jax.device_put([env[slot] for slot in self.sources], self.shardings)
            for slot, copy in zip(self.targets, copies, strict=True):
                env[slot] = copy
        for source, target, transfer in self.others:
            env[target] = transfer(env[source])


@dataclass(frozen=True, slots=True)
class _Run:
    """An instruction with everything looked up."""

    action: str
    name: str
    call: Call
    args: tuple[int, ...]
    results: tuple[int, ...]
    values: tuple[str, ...]
    moves: _Moves | None
    drops: tuple[int, ...]


class Interpreter:
    """Runs the steps of one executable; `interpreter(arguments)` is one step.

    Nothing in a step waits for a device: programs, transfers and frees are dispatched in the order
    of the tape, and the results are arrays in the making. (Under jax_debug_nans or jax_debug_infs
    each program's results are waited for and looked at.)

    What survives when a step is left by an exception:

    - Before the update phase only shardc's own buffers are donated. A failing program, a NaN that
      jax_debug_nans finds there, or Ctrl-C leaves every argument readable.
    - In the update phase Ctrl-C waits until the step is complete. The step's results are then in
      `unreturned_results`, for the arguments they replace are gone. So they are when a check finds
      a NaN in what an update made. If an update itself cannot be dispatched, donated arguments may
      be gone, and the exception's notes say so.

    A donated argument is gone after the step, also if it had to be copied to its place. One that
    is not donated stays readable, and no result shares its buffer.

    Attributes:
        argument_shardings: where each flat argument is expected (None: no program reads it); an
            array that lies so is used without a copy.
        last_trace: of the last step (action, host time in ns) in order of dispatch.
        unreturned_results: see above; None after a step that returned.
    """

    def __init__(self, executable: Executable, programs: Sequence[Program]) -> None:
        tape = build_tape(executable, programs)
        self._executable = executable
        self._transfers = Transfers()
        self._shardings = _slot_shardings(tape.slots, programs)
        self._primary = tape.primary
        self._argument_moves = self._moves(tape.argument_moves, tape.slots)
        self._heavy = [self._run_of(entry, programs, tape.slots) for entry in tape.heavy]
        self._updates = [self._run_of(entry, programs, tape.slots) for entry in tape.updates]
        self._zeros = [
            (
                slots,
                _zeros_program([tape.slots[i] for i in slots], [self._shardings[i] for i in slots]),
            )
            for slots in tape.accumulators
            if slots
        ]
        self._template: Environment = [None] * len(tape.slots)
        for slot, microbatch in tape.indices:
            self._template[slot] = jax.device_put(np.int32(microbatch), self._shardings[slot])
        self.argument_shardings = tuple(
            None if slot is None else self._shardings[slot] for slot in tape.primary
        )
        self._placer = ArgumentPlacer(
            executable.arguments,
            self.argument_shardings,
            [None if slot is None else tape.slots[slot].shape for slot in tape.primary],
            self._transfers,
        )
        self._stacks = Stacks(
            executable.arguments,
            executable.results,
            self.argument_shardings,
            [None if slot is None else self._shardings[slot] for slot in tape.results],
            self._transfers,
        )
        self._results = tape.results
        self._finishers = [_finisher(executable, i) for i in range(len(executable.results))]
        self.last_trace: list[tuple[str, int]] = []
        self.unreturned_results: list[jax.Array] | None = None

    def user_shardings(self) -> UserShardings:
        """Where the user's own arguments and results lie, stacks as one."""
        executable = self._executable
        return UserShardings(
            argument_places(
                executable.arguments, self.argument_shardings, self._stacks.argument_places()
            ),
            result_places(
                executable.results,
                [None if slot is None else self._shardings[slot] for slot in self._results],
                self._stacks.result_places(),
                self._finishers,
                executable.num_microbatches,
            ),
        )

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """One step.

        Args:
            arguments: flat, one per `Executable.arguments` that is no piece of another; arrays of
                JAX or NumPy, or scalars.
        Returns:
            One array per `Executable.results` that is no piece of another.
        Raises:
            InputError: SHARDC-262, 263, 264, an argument is not usable; nothing has run.
            FloatingPointError: under jax_debug_nans or jax_debug_infs.
        """
        self.unreturned_results = None
        trace: list[tuple[str, int]] = []
        self.last_trace = trace
        checks = wanted_checks()
        if any(checks):
            # JAX's own check would look at partial sums, and between two updates.
            with jax.debug_nans(False), jax.debug_infs(False):
                return self._step(arguments, trace, checks)
        return self._step(arguments, trace, None)

    def _step(
        self,
        given: Sequence[Any],
        trace: list[tuple[str, int]],
        checks: tuple[bool, bool] | None,
    ) -> list[jax.Array]:
        arguments = self._stacks.take_apart(given)
        env = self._template.copy()
        for slot, array in zip(self._primary, self._placer.place(arguments), strict=True):
            if slot is not None:
                env[slot] = array
        self._argument_moves.run(env)
        for slots, zeros in self._zeros:
            for slot, zero in zip(slots, zeros(), strict=True):
                env[slot] = zero
        for run in self._heavy:
            _dispatch(run, env, trace, checks)
        with deferred_interrupt():
            try:
                found: FloatingPointError | None = None
                for run in self._updates:
                    try:
                        _dispatch(run, env, trace, checks)
                    except FloatingPointError as error:
                        found = found or error
                results = self._stacks.put_together(self._finish(env, arguments))
                self._delete_donated(arguments)
                self._stacks.delete_donated(given)
            except BaseException as error:
                error.add_note("shardc: the updates had begun: donated arguments may be gone")
                raise
            # Until the caller has them: an interrupt or a NaN below must not lose the new state.
            self.unreturned_results = results
            if found is not None:
                raise found
        self.unreturned_results = None
        return results

    def _finish(self, env: Environment, arguments: Sequence[Any]) -> list[jax.Array]:
        results = []
        for slot, result, finish in zip(
            self._results, self._executable.results, self._finishers, strict=True
        ):
            value = arguments[value_id(result.value).number] if slot is None else env[slot]
            results.append(value if finish is None else finish(value))
        return results

    def _delete_donated(self, arguments: Sequence[Any]) -> None:
        for argument, value in zip(self._executable.arguments, arguments, strict=True):
            if argument.donated and isinstance(value, jax.Array) and not value.is_deleted():
                value.delete()

    def _moves(self, pairs: list[tuple[int, int]], slots: list[Slot]) -> _Moves:
        moves = _Moves([], [], [], [])
        for source, target in pairs:
            slot, sharding = slots[target], self._shardings[target]
            transfer = self._transfers.find(
                self._shardings[source], sharding, slot.shape, slot.dtype
            )
            if transfer.is_copy and transfer.copy_to == sharding:
                moves.sources.append(source)
                moves.targets.append(target)
                moves.shardings.append(sharding)
            else:
                moves.others.append((source, target, transfer))
        return moves

    def _run_of(self, entry: Instruction, programs: Sequence[Program], slots: list[Slot]) -> _Run:
        program = programs[entry.program]
        return _Run(
            entry.action,
            program.program.name,
            program.call,
            entry.args,
            entry.results,
            tuple(spec.value for spec in program.results),
            self._moves(entry.moves, slots) if entry.moves else None,
            tuple(entry.drops),
        )


def _dispatch(
    run: _Run,
    env: Environment,
    trace: list[tuple[str, int]],
    checks: tuple[bool, bool] | None,
) -> None:
    """Never waits, unless `checks` are wanted; they come last, so that the environment is whole."""
    results = run.call(*[env[slot] for slot in run.args])
    for slot, result in zip(run.results, results, strict=True):
        env[slot] = result
    if run.moves is not None:
        run.moves.run(env)
    # Nobody else refers to these arrays: their memory is free as soon as the device is done.
    for slot in run.drops:
        env[slot] = None
    trace.append((run.action, time.perf_counter_ns()))
    if checks is not None:
        check_values(run.name, run.action, list(zip(run.values, results, strict=True)), checks)


def _slot_shardings(slots: list[Slot], programs: Sequence[Program]) -> list[NamedSharding]:
    known: dict[tuple[int, TensorSharding], NamedSharding] = {}
    for program in programs:
        specs = program.args + program.results
        for spec, sharding in zip(specs, program.in_shardings + program.out_shardings, strict=True):
            known.setdefault((program.program.stage, spec.sharding), sharding)
    return [known[slot.stage, slot.sharding] for slot in slots]


def _zeros_program(slots: list[Slot], shardings: list[NamedSharding]) -> jax.stages.Compiled:
    """All accumulators of a stage in one call."""

    def zeros() -> list[jax.Array]:
        return [jnp.zeros(slot.shape, slot.dtype) for slot in slots]

    return jax.jit(zeros, out_shardings=shardings).lower().compile()


def _finisher(executable: Executable, index: int) -> Callable[[Any], jax.Array] | None:
    """What a result still needs: its microbatches merged, or a buffer of its own.

    A value that is returned twice is copied, and so is an argument that is returned unchanged;
    if that was donated it gives up its buffer instead. `jax.jit` does the same.
    """
    result = executable.results[index]
    if result.batch_dim is not None:
        return jax.jit(lambda value: value.reshape(result.shape))
    # The last of several takes the value itself: the copies are dispatched before it is donated.
    is_last = all(other.value != result.value for other in executable.results[index + 1 :])
    if not is_argument(result.value):
        return None if is_last else _copied
    donated = executable.arguments[value_id(result.value).number].donated
    return _taken if donated and is_last else _copied


_copied = jax.jit(lambda value: value)
_taken = jax.jit(lambda value: value, donate_argnums=0)
