"""The numerical check sees what it must: each broken program fails it."""

import functools
from collections.abc import Callable, Iterator

import jax
import msgspec
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.api.stages import Compiled
from shardc.backend.programs import compile_programs
from shardc.check.numerics import Report, compare
from shardc.ir.context import parse
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import functions, terminator, walk
from shardc.plan.executable import Executable
from shardc.runtime import interpreter
from shardc.runtime.interpreter import Interpreter
from tests.py.programs import build
from tests.py.table import Cell, compiled, reference, run

Edit = Callable[[ir.Operation], bool]  # changes a program; False: found nothing to change

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@functools.cache
def step() -> Compiled:
    """The MLP in two stages and two microbatches on 8 devices."""
    return compiled(Cell("mlp", 2, 2, "1f1b"), "float64")


def report(executable: Executable) -> Report:
    """Runs the steps of the table and judges them."""
    call = Interpreter(executable, compile_programs(executable, jax.devices()))
    tree = step().out_tree

    def one(*args: object) -> object:
        return jax.tree.unflatten(tree, call(jax.tree.leaves(args)))

    got = run(one, build("mlp", "float64").args)
    return compare(reference("mlp", "float64"), None, got)


def edited(edit: Edit, kind: str = "") -> Executable:
    """The executable with the first program (of `kind`) that `edit` changes."""
    executable = step().executable
    programs = list(executable.programs)
    for i, program in enumerate(programs):
        if kind and program.kind != kind:
            continue
        module = parse(program.module)
        with module.context, ir.Location.unknown():
            if edit(module.operation):
                programs[i] = msgspec.structs.replace(program, module=str(module).encode())
                return msgspec.structs.replace(executable, programs=tuple(programs))
    raise AssertionError("nothing to change")


def without_a_sum(module: ir.Operation) -> bool:
    """Removes a sum over devices: each keeps its own partial sum, or a part of it."""
    for op in walk(module):
        if op.name in ("stablehlo.all_reduce", "stablehlo.reduce_scatter"):
            shape = shape_of(op.results[0])
            with ir.InsertionPoint(op):
                own = stablehlo.slice(op.operands[0], [0] * len(shape), shape, [1] * len(shape))
            op.results[0].replace_all_uses_with(own)
            op.erase()
            return True
    return False


def with_a_result_doubled(module: ir.Operation) -> bool:
    """Doubles the first floating result of the program."""
    for function in functions(module):
        end = terminator(function)
        for i, value in enumerate(end.operands):
            if "f64" in str(value.type):
                with ir.InsertionPoint(end):
                    end.operands[i] = stablehlo.add(value, value)
                return True
    return False


def test_the_program_itself_passes() -> None:
    assert report(step().executable).passed


def test_a_collective_removed_fails() -> None:
    assert not report(edited(without_a_sum)).passed


@pytest.mark.parametrize("kind", ["forward", "backward", "update"])
def test_an_output_doubled_fails(kind: str) -> None:
    assert not report(edited(with_a_result_doubled, kind)).passed


def test_a_microbatch_skipped_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one runs twice, so that every shape is as it was."""
    build_tape = interpreter.build_tape

    def first_only(*args: object) -> object:
        tape = build_tape(*args)
        tape.indices = [(slot, 0) for slot, _ in tape.indices]
        return tape

    monkeypatch.setattr(interpreter, "build_tape", first_only)
    assert not report(step().executable).passed


def test_a_nan_fails() -> None:
    good = reference("mlp", "float64")
    name = next(iter(good))
    bad = {**good, name: np.full_like(good[name], np.nan)}
    assert compare(good, None, good).passed
    assert not compare(good, None, bad).passed
