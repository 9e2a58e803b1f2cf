"""Runs a step: all actions of all stages, dispatched by one process."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding

from shardc.plan.executable import Executable
from shardc.plan.value_id import is_argument, value_id
from shardc.runtime.arguments.donated_once import DonatedOnce
from shardc.runtime.arguments.place import ArgumentPlacer
from shardc.runtime.arguments.place_in_job import JobPlacer
from shardc.runtime.assumptions import check_assumptions
from shardc.runtime.compiled_program import Program
from shardc.runtime.interrupts import deferred_interrupt
from shardc.runtime.messages.shared import SharedResults
from shardc.runtime.nan_checks import wanted_checks
from shardc.runtime.operations import Checks, Environment, Trace, Zeros, operations
from shardc.runtime.processes.arrays import is_here, nowhere_here, put
from shardc.runtime.processes.job import is_several, this_job
from shardc.runtime.processes.peers import between_processes
from shardc.runtime.split_stacks import Stacks
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Message, Slot
from shardc.runtime.tape.measured import next_step
from shardc.runtime.tape.places import slot_places
from shardc.runtime.tape.ranks import check_meetings
from shardc.runtime.transfers import Transfers
from shardc.runtime.transport import InProcess, Move, Route, Transport
from shardc.runtime.user_places import (
    UserShardings,
    argument_places,
    result_places,
    without_microbatches,
)

MOST_NAMED = 8  # arguments in the note on an exception


class Interpreter:
    """Runs the steps of one executable; `interpreter(arguments)` is one step.

    Nothing in a step waits for a device: programs, transfers and frees are dispatched in the order
    of the tape, and the results may still be in computation. (Under jax_debug_nans or
    jax_debug_infs the results of each program are waited for and checked. A step that takes
    something for granted, as token slices do, waits for what says whether it holds.)

    What survives when an exception ends a step:

    - Before the update phase only shardc's own buffers are donated. After a failing program, a NaN
      that jax_debug_nans finds, or Ctrl-C, every argument is readable.
    - The update phase begins with the first program that reuses the buffer of a donated argument:
      behind all programs of microbatches, or, with `Executable.early_updates`, among them. In it
      Ctrl-C waits until the step is complete. The step's results are then in `unreturned_results`,
      because the arguments they replace are gone. The same holds if a check finds a NaN in a
      result, or what the step takes for granted does not hold. If a program cannot be dispatched,
      a note on the exception names the donated arguments that are gone.

    Threads take turns: messages and collectives of two steps must not mix.

    A donated argument is deleted by the step, even if it had to be copied into place. One that
    is not donated stays readable, and no result shares its buffer.

    Attributes:
        argument_shardings: the expected sharding of each flat argument (None: no program reads it);
            an array with this sharding is used without a copy.
        last_trace: of the last step, (action, host time in ns) in order of dispatch.
        unreturned_results: see above; the caller of a step sets None once it keeps the results.
    """

    def __init__(self, executable: Executable, programs: Sequence[Program]) -> None:
        tape = build_tape(executable, programs)
        self._executable = executable
        self._transfers = Transfers()
        self._shardings = slot_places(tape, programs)
        self._primary = tape.primary
        job = this_job() if is_several() else None
        local = InProcess(self._transfers)
        between = between_processes(local)
        self._here = [is_here(sharding) for sharding in self._shardings]
        own = {slot.group for slot, here in zip(tape.slots, self._here, strict=True) if here}
        own_groups = own | {tape.groups[group] for group in own}
        groups = [tape.groups[program.program.stage] for program in programs]
        if job is not None:
            check_meetings(tape, groups, _ranks(tape.slots, self._shardings))
        before, updates = tape.part(groups, own_groups.__contains__)
        routes = {
            number: self._route(between or local, message, tape.slots)
            for number, message in enumerate(tape.messages)
            if own_groups & {message.source, message.target}
        }

        @functools.cache
        def zeros(slots: tuple[tuple[tuple[int, ...], str, NamedSharding], ...]) -> Zeros:
            return _zeros_program(slots)

        def filled(slots: Sequence[int]) -> Zeros:
            return zeros(
                tuple((tape.slots[i].shape, tape.slots[i].dtype, self._shardings[i]) for i in slots)
            )

        self._before = operations(before, tape, programs, routes, filled)
        self._updates = operations(updates, tape, programs, routes, filled)
        self._zeros = [
            (slots, filled(slots)) for slots in tape.accumulators if slots and self._here[slots[0]]
        ]
        self._template: Environment = [None] * len(tape.slots)
        for slot, microbatch in tape.indices:
            if self._here[slot]:
                self._template[slot] = put(np.asarray(np.int32(microbatch)), self._shardings[slot])
        self.argument_shardings = tuple(
            None if slot is None else self._shardings[slot] for slot in tape.primary
        )
        shapes = [None if slot is None else tape.slots[slot].shape for slot in tape.primary]
        places = executable.arguments, self.argument_shardings, shapes, self._transfers
        self._stacks = Stacks(
            executable.arguments,
            executable.results,
            self.argument_shardings,
            [None if slot is None else self._shardings[slot] for slot in tape.results],
            self._transfers,
        )
        self._results = tape.results
        self._assumed = [result for result in executable.results if result.assumed]
        self._finishers = [
            _finisher(executable, i, None if slot is None else self._shardings[slot])
            for i, slot in enumerate(tape.results)
        ]
        self._shared: SharedResults | None = None
        if job is None or between is None:
            self._placer = ArgumentPlacer(*places)
        else:
            found = dict.fromkeys(d for place in self._shardings for d in place.mesh.devices.flat)
            self._shared = SharedResults(executable, self._result_places(), list(found), between)
            self._placer = JobPlacer(*places, between, job.agreement())
        self._donated_once = DonatedOnce(
            [each for each in executable.arguments if each.piece is None]
        )
        self.passed_on = self._donated_once.passed_on
        self._turn = threading.Lock()
        self.last_trace = Trace()
        self.unreturned_results: list[jax.Array] | None = None

    def _result_places(self) -> list[Sharding | None]:
        """The shardings of the user's results; None for an argument that no program reads."""
        stacks = self._stacks.result_places()
        found: list[Sharding | None] = []
        for i, result in enumerate(self._executable.results):
            slot = self._results[i]
            place = None if slot is None else self._shardings[slot]
            if result.piece is None:
                found.append(stacks.get(i) or without_microbatches(place, result.batch_dim))
        return found

    def user_shardings(self) -> UserShardings:
        """The shardings of the user's own arguments and results, with each stack as one."""
        executable = self._executable
        results = result_places(
            executable.results,
            [None if slot is None else self._shardings[slot] for slot in self._results],
            self._stacks.result_places(),
            self._finishers,
            executable.num_microbatches,
        )
        shared = {} if self._shared is None else self._shared.places
        return UserShardings(
            argument_places(
                executable.arguments, self.argument_shardings, self._stacks.argument_places()
            ),
            tuple(shared.get(i, place) for i, place in enumerate(results)),
        )

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """One step.

        Args:
            arguments: flat, one per `Executable.arguments` that is not a piece of another; JAX or
                NumPy arrays, or scalars.
        Returns:
            One array per `Executable.results` that the user gets and that is no piece of another.
        Raises:
            InputError: SHARDC-262, 263, 264, an argument is unusable; nothing has run.
            FloatingPointError: under jax_debug_nans or jax_debug_infs.
            CheckError: SHARDC-271, what the step takes for granted does not hold.
        """
        checks = wanted_checks()
        with self._turn:
            self.unreturned_results = None
            trace = self.last_trace = Trace()
            trace.measured = next_step()
            try:
                if any(checks):
                    # JAX's check would also reject partial sums, and interrupt between updates.
                    with jax.debug_nans(False), jax.debug_infs(False):
                        return self._step(arguments, trace, checks)
                return self._step(arguments, trace, None)
            except BaseException:
                self._placer.abandoned()
                raise

    def _step(
        self,
        given: Sequence[Any],
        trace: Trace,
        checks: Checks,
    ) -> list[jax.Array]:
        arguments = self._stacks.take_apart(given)
        env = self._template.copy()
        for slot, array in zip(self._primary, self._placer.place(arguments), strict=True):
            if slot is not None:
                env[slot] = array
        self._donated_once.check(given)
        for slots, zeros in self._zeros:
            for slot, zero in zip(slots, zeros(), strict=True):
                env[slot] = zero
        for operation in self._before:
            operation(env, trace, checks)
        with deferred_interrupt():
            try:
                found: FloatingPointError | None = None
                for operation in self._updates:
                    try:
                        operation(env, trace, checks)
                    except FloatingPointError as error:
                        found = found or error
                results = self._stacks.put_together(self._finish(env, arguments))
                if self._shared is not None:
                    self._shared.share(results)
                first_flag = len(results) - len(self._assumed)
                results, flags = results[:first_flag], results[first_flag:]
                self._delete_donated(arguments)
                self._stacks.delete_donated(given)
                self._donated_once.returned(results)
            except BaseException as error:
                error.add_note(self._what_is_gone(given))
                raise
            # An interrupt or a NaN must not lose the new state on its way to the user.
            self.unreturned_results = results
            self._placer.completed()
            if found is not None:
                raise found
        if flags:
            check_assumptions(self._assumed, flags)
        return results

    def _finish(self, env: Environment, arguments: Sequence[Any]) -> list[jax.Array]:
        results = []
        for slot, result, finish in zip(
            self._results, self._executable.results, self._finishers, strict=True
        ):
            if slot is None:
                value = arguments[value_id(result.value).number]
                here = not isinstance(value, jax.Array) or is_here(value.sharding)
                sharding = getattr(value, "sharding", None)
            else:
                value, here, sharding = env[slot], self._here[slot], self._shardings[slot]
            if not here:
                place = without_microbatches(sharding, result.batch_dim)
                assert place is not None, "it is on other processes"
                value = nowhere_here(result.shape, place, result.dtype)
            elif finish is not None:
                value = finish(value)
            results.append(value)
        return results

    def _delete_donated(self, arguments: Sequence[Any]) -> None:
        for argument, value in zip(self._executable.arguments, arguments, strict=True):
            if argument.donated and isinstance(value, jax.Array) and not value.is_deleted():
                value.delete()

    def _what_is_gone(self, given: Sequence[Any]) -> str:
        user_arguments = (each for each in self._executable.arguments if each.piece is None)
        gone = [
            argument.name
            for argument, value in zip(user_arguments, given, strict=True)
            if argument.donated and isinstance(value, jax.Array) and _has_lost_some(value)
        ]
        others = f" and {len(gone) - MOST_NAMED} others" if len(gone) > MOST_NAMED else ""
        names = ", ".join(gone[:MOST_NAMED]) or "none"
        return f"shardc: the updates had begun; donated arguments that are gone: {names}{others}"

    def _route(self, transport: Transport, message: Message, slots: Sequence[Slot]) -> Route:
        shardings = self._shardings
        return transport.route(
            [
                Move(shardings[source], shardings[target], slots[target].shape, slots[target].dtype)
                for source, target in message.moves
            ]
        )


def _has_lost_some(value: jax.Array) -> bool:
    """Whether an array is deleted, or a stack of which one stage has consumed its rows."""
    return value.is_deleted() or any(each.data.is_deleted() for each in value.addressable_shards)


def _ranks(slots: list[Slot], shardings: list[NamedSharding]) -> dict[int, frozenset[int]]:
    """By device group, the processes of its devices."""
    devices: dict[int, Any] = {
        slot.group: sharding.device_set for slot, sharding in zip(slots, shardings, strict=True)
    }
    return {group: frozenset(d.process_index for d in own) for group, own in devices.items()}


def _zeros_program(types: Sequence[tuple[tuple[int, ...], str, NamedSharding]]) -> Zeros:
    """Creates arrays of zeros of these shapes, types and shardings in one call."""

    def zeros() -> list[jax.Array]:
        return [jnp.zeros(shape, dtype) for shape, dtype, _ in types]

    places = [place for *_, place in types]
    compiled: Zeros = jax.jit(zeros, out_shardings=places).lower().compile()
    return compiled


def _finisher(
    executable: Executable, index: int, place: NamedSharding | None
) -> Callable[[Any], jax.Array] | None:
    """The last operation on a result, if any: merging its microbatches, or copying it.

    A value that is returned twice is copied, as is an argument that is returned unchanged,
    unless it was donated: then its buffer is passed on. `jax.jit` does the same.
    """
    result = executable.results[index]
    if result.batch_dim is not None:
        # A process without a part of the result must know its sharding, so XLA may not choose it.
        sharding = without_microbatches(place, result.batch_dim) if is_several() else None
        return jax.jit(lambda value: value.reshape(result.shape), out_shardings=sharding)
    # The last of several takes the value itself: the copies are dispatched before its donation.
    is_last = all(other.value != result.value for other in executable.results[index + 1 :])
    if not is_argument(result.value):
        return None if is_last else _copied
    donated = executable.arguments[value_id(result.value).number].donated
    return _taken if donated and is_last else _copied


_copied = jax.jit(lambda value: value)
_taken = jax.jit(lambda value: value, donate_argnums=0)
