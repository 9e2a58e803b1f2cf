"""Instructions with all lookups done in advance, so that a step is a flat list of calls."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from shardc.errors import ShardcError
from shardc.runtime.compiled_program import Program
from shardc.runtime.nan_checks import check_values
from shardc.runtime.tape.check_tape import said
from shardc.runtime.tape.instructions import Free, Instruction, Receive, Run, Send, Tape, Zero
from shardc.runtime.tape.measured import Measurement
from shardc.runtime.transport import Route

Environment = list[Any]


class Trace(list[tuple[str, int]]):
    """Actions in the order of their dispatch, with times (`time.perf_counter_ns`).

    Attributes:
        measured: runs the programs if the step is measured.
    """

    measured: Measurement | None = None


Checks = tuple[bool, bool] | None
Zeros = Callable[[], Sequence[jax.Array]]
Operation = Callable[[Environment, Trace, Checks], None]
"""Works on the slots of a step; appends what it ran, and when, to the trace."""


def operations(
    instructions: Sequence[Instruction],
    tape: Tape,
    programs: Sequence[Program],
    routes: Mapping[int, Route],
    zeros: Callable[[tuple[int, ...]], Zeros],
) -> list[Operation]:
    """One operation per instruction, a part of `tape`; none waits, unless checks are wanted.

    Args:
        routes: of each message that these instructions send or receive.
        zeros: makes the program that fills slots with zeros.
    """
    found: list[Operation] = []
    for instruction in instructions:
        match instruction:
            case Run():
                found.append(_run(instruction, programs[instruction.program], tape))
            case Send(message):
                slots = tuple(source for source, _ in tape.messages[message].moves)
                found.append(_send(routes[message], slots, str(instruction), tape))
            case Receive(message):
                slots = tuple(target for _, target in tape.messages[message].moves)
                found.append(_receive(routes[message], slots))
            case Zero(slots):
                found.append(_zero(zeros(slots), slots))
            case Free(slots):
                found.append(_free(slots))
    return found


def _run(run: Run, program: Program, tape: Tape) -> Operation:
    action, args, results = run.action, run.args, run.results
    call, name = program.call, program.program.name
    values = tuple(spec.value for spec in program.results)

    def operation(env: Environment, trace: Trace, checks: Checks) -> None:
        read = [env[slot] for slot in args]
        try:
            if trace.measured is None:
                made = call(*read)
            else:
                made = trace.measured.run(action, name, call, read)
        except Exception as error:  # most JAX errors here come from a freed slot
            _check_there(env, args, action, tape, error)
            raise
        for slot, value in zip(results, made, strict=True):
            env[slot] = value
        trace.append((action, time.perf_counter_ns()))
        if checks is not None:
            check_values(name, action, list(zip(values, made, strict=True)), checks)

    return operation


def _send(route: Route, sources: tuple[int, ...], name: str, tape: Tape) -> Operation:
    send = route.send

    def operation(env: Environment, trace: Trace, checks: Checks) -> None:
        start_ns = time.perf_counter_ns()
        try:
            send([env[slot] for slot in sources])
        except Exception as error:  # most JAX errors here come from a freed slot
            _check_there(env, sources, name, tape, error)
            raise
        if trace.measured is not None:
            trace.measured.sent(start_ns)

    return operation


def _receive(route: Route, targets: tuple[int, ...]) -> Operation:
    receive = route.receive

    def operation(env: Environment, trace: Trace, checks: Checks) -> None:
        start_ns = time.perf_counter_ns()
        values = receive()
        for slot, value in zip(targets, values, strict=True):
            env[slot] = value
        if trace.measured is not None:
            trace.measured.received(start_ns, values)

    return operation


def _zero(zeros: Zeros, slots: tuple[int, ...]) -> Operation:
    def operation(env: Environment, trace: Trace, checks: Checks) -> None:
        for slot, value in zip(slots, zeros(), strict=True):
            env[slot] = value

    return operation


def _free(slots: tuple[int, ...]) -> Operation:
    # No other references exist: the memory is free as soon as the device is done.
    def operation(env: Environment, trace: Trace, checks: Checks) -> None:
        for slot in slots:
            env[slot] = None

    return operation


def _check_there(
    env: Environment, slots: Sequence[int], name: str, tape: Tape, error: Exception
) -> None:
    """ShardcError (SHARDC-266) if a value that an instruction reads does not exist."""
    for slot in slots:
        value = env[slot]
        if value is None or (isinstance(value, jax.Array) and value.is_deleted()):
            raise ShardcError(
                f"'{name}' reads {said(tape.slots[slot])}, which does not exist", code="SHARDC-266"
            ) from error
