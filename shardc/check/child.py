"""Runs modules in a child process, because the StableHLO interpreter may abort its process."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any, Self

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import numpy.typing as npt
from jax.extend.mlir import ir

from shardc.analysis.program.flops import op_cost
from shardc.check.forms.engines import Run, interpreter, lacks, xla
from shardc.check.forms.evaluate import evaluate
from shardc.check.forms.on_devices import ReplicasDiffer
from shardc.ir.context import parse
from shardc.ir.copy import bytecode
from shardc.ir.walk import ops

Array = npt.NDArray[Any]
Arrays = list[Array]
MOST_FLOPS = 1e7  # of a function that the interpreter runs: about ten seconds
_LENGTH = 8  # bytes of a message's length prefix


class Sent(msgspec.Struct, frozen=True):
    """An array as sent over a pipe."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Request(msgspec.Struct):
    module: bytes
    inputs: dict[str, list[Sent]]
    patient: bool


class _Answer(msgspec.Struct):
    results: dict[str, list[Sent]] = {}
    lacking: list[str] = []
    problem: str = ""
    wrong: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The result of a run.

    Attributes:
        results: by name of the function; empty if it could not run.
        lacking: what the interpreter lacks, so that XLA ran it.
        problem: why it could not run, or how devices disagreed.
        wrong: the problem is in the program, not in the engine.
    """

    results: dict[str, Arrays]
    lacking: tuple[str, ...] = ()
    problem: str = ""
    wrong: bool = False


def run_here(module: ir.Module, inputs: Mapping[str, Arrays], *, patient: bool = True) -> Outcome:
    """Runs the module, in any form, in this process, which the interpreter may abort.

    Args:
        inputs: as in `shardc.check.forms.evaluate`.
        patient: let the interpreter run whatever it can in reasonable time; False: XLA runs all.
    """
    lacking: dict[str, None] = {}

    def engine(module: ir.Operation, function: ir.Operation, num_devices: int) -> Run:
        missing = lacks(module, function, num_devices)
        if sum(op_cost(op).flops for op in ops(function)) > MOST_FLOPS:
            missing = (*missing, "speed for programs of this size")
        lacking.update(dict.fromkeys(missing))
        use_xla = missing or not patient
        return (xla if use_xla else interpreter)(module, function, num_devices)

    try:
        found = evaluate(module, inputs, engine)
    except ReplicasDiffer as error:
        return Outcome({}, tuple(lacking), str(error), wrong=True)
    except Exception as error:  # noqa: BLE001 - the caller gets whatever an engine raises
        return Outcome({}, tuple(lacking), f"{type(error).__name__}: {error}")
    return Outcome(found, tuple(lacking))


class Child:
    """A process that evaluates modules; it is replaced if it ends or takes too long.

    Args:
        timeout_s: for one evaluation by the interpreter; after it, XLA gets the same time.
    """

    def __init__(self, timeout_s: float = 60.0) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def evaluate(self, module: ir.Module, inputs: Mapping[str, Arrays]) -> Outcome:
        """Runs the module, in any form, like `shardc.check.forms.evaluate`."""
        code = bytecode(module.operation)
        sent = {name: [_send(array) for array in arrays] for name, arrays in inputs.items()}
        answer = self._ask(_Request(code, sent, patient=True))
        if answer is None:
            answer = self._ask(_Request(code, sent, patient=False))
            if answer is None:
                return Outcome({}, problem=f"no engine ran it within {self.timeout_s:g} s each")
            answer.lacking.append("time or the process")
        results = {name: [_receive(a) for a in arrays] for name, arrays in answer.results.items()}
        return Outcome(results, tuple(answer.lacking), answer.problem, answer.wrong)

    def _ask(self, request: _Request) -> _Answer | None:
        """None if the child ended or did not answer in time."""
        process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        _write(process.stdin, msgspec.msgpack.encode(request))
        ready, _, _ = select.select([process.stdout], [], [], self.timeout_s)
        data = _read(process.stdout) if ready else None
        if data is None:
            self._end()
            return None
        return msgspec.msgpack.decode(data, type=_Answer)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", "shardc.check.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH)
    return stream.read(int.from_bytes(head, "little")) if len(head) == _LENGTH else None


def _send(array: Array) -> Sent:
    return Sent(array.dtype.name, array.shape, np.array(array, order="C").tobytes())


def _receive(sent: Sent) -> Array:
    return np.frombuffer(sent.data, jnp.dtype(sent.dtype)).reshape(sent.shape).copy()


def _answer(request: _Request) -> _Answer:
    inputs = {name: [_receive(a) for a in arrays] for name, arrays in request.inputs.items()}
    found = run_here(parse(request.module), inputs, patient=request.patient)
    results = {name: [_send(a) for a in arrays] for name, arrays in found.results.items()}
    return _Answer(results, list(found.lacking), found.problem, found.wrong)


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    while (data := _read(sys.stdin.buffer)) is not None:
        request = msgspec.msgpack.decode(data, type=_Request)
        _write(answers, msgspec.msgpack.encode(_answer(request)))


if __name__ == "__main__":
    _serve()
