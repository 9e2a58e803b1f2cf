"""What the program says of its values is what jaxlib's StableHLO interpreter computes."""

from random import Random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import counted_loop, trip_count
from shardc.analysis.values.facts import Values, counts_along, number_of
from shardc.ir.context import parse
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, main_function, ops, terminator
from tests.py.analysis.values.integer_programs import (
    Counter,
    limits,
    loop_program,
    straight_program,
)

SEEDS = st.integers(0, 1 << 32)


def evaluated(module: ir.Module) -> list[np.ndarray]:
    return [np.array(result) for result in stablehlo.eval_module(module, [])]


def source(wide: ir.Value) -> ir.Value:
    """The value of which a program returns a copy in a wide type."""
    op = defining_op(wide)
    assert op is not None
    assert op.name == "stablehlo.convert"
    return op.operands[0]


@pytest.mark.slow
@hypothesis.settings(max_examples=150)
@hypothesis.given(SEEDS)
def test_facts_are_what_the_interpreter_computes(seed: int) -> None:
    module = parse(straight_program(Random(seed), 14))
    returned = list(terminator(main_function(module.operation)).operands)
    values = Values()
    for wide, expected in zip(returned, evaluated(module), strict=True):
        for value in (wide, source(wide)):
            found = values.of(value)
            if found is not None:
                np.testing.assert_array_equal(
                    np.broadcast_to(found, (1, *expected.shape))[0], expected, str(value)
                )
            dim = values.counts_along(value)
            if dim is not None:
                counted = np.arange(expected.shape[dim]).reshape(
                    [-1] + [1] * (expected.ndim - 1 - dim)
                )
                np.testing.assert_array_equal(np.broadcast_to(counted, expected.shape), expected)


def test_most_of_what_random_programs_compute_is_known() -> None:
    known = unknown = 0
    for seed in range(50):
        module = parse(straight_program(Random(seed), 14))
        values = Values()
        for wide in terminator(main_function(module.operation)).operands:
            if values.of(source(wide)) is None:
                unknown += 1
            else:
                known += 1
    assert known > 3 * unknown


@hypothesis.settings(max_examples=300)
@hypothesis.given(SEEDS)
def test_counts_of_loops_are_those_of_their_type(seed: int) -> None:
    counter = Counter.drawn(Random(seed))
    module = parse(loop_program(Random(seed), counter, 0, 1))
    found, counts = trip_count(the_loop(module)), counter.counts(1000)
    if counts is None:
        assert found is None or found > 1000
        return
    assert found in (None, len(counts))
    low, high = limits(counter.element)
    straight = [counter.start + counter.step * k for k in range(len(counts) + 1)]
    if counts and straight[:-1] == counts and low <= straight[-1] <= high:
        assert found == len(counts)


@pytest.mark.slow
@hypothesis.settings(max_examples=100)
@hypothesis.given(SEEDS)
def test_facts_of_iterations_are_what_the_interpreter_computes(seed: int) -> None:
    random = Random(seed)
    counter = Counter.drawn(random)
    while not (counts := counter.counts(40)):
        counter = Counter.drawn(random)
    module = parse(loop_program(random, counter, 10, len(counts)))
    loop = the_loop(module)
    counted = counted_loop(loop)
    if counted is None:  # it wraps around: let nobody run it by its count
        return
    inside = loop.regions[1].blocks[0]
    values = counted.values(inside)
    for update, expected in list(
        zip(block_terminator(inside).operands, evaluated(module), strict=True)
    )[3:]:
        flat = defining_op(update).operands[1]
        wide = defining_op(flat).operands[0]
        for value in (flat, wide, source(wide)):
            found = values.of(value)
            if found is not None:
                every = np.broadcast_to(found, (len(counts), *shape_of(value)))
                np.testing.assert_array_equal(every.reshape(len(counts), -1), expected, str(value))


def the_loop(module: ir.Module) -> ir.Operation:
    return next(op for op in ops(main_function(module.operation)) if op.name == "stablehlo.while")


def of_text(lines: str) -> tuple[ir.Module, ir.Value]:
    """The last value of a program; the module must live as long."""
    module = parse("func.func @main(%x: tensor<i32>) {\n" + lines + "\n return\n}")
    return module, ops(main_function(module.operation))[-1].results[0]


@pytest.mark.parametrize(
    ("element", "most"),
    [("i8", 128), ("ui8", 256), ("i16", 1 << 15), ("ui16", 1 << 16), ("i32", None), ("ui64", None)],
)
def test_an_iota_counts_as_far_as_its_type_goes(element: str, most: int | None) -> None:
    for size in (2, 100, *([] if most is None else [most, most + 1])):
        module, value = of_text(f"%0 = stablehlo.iota dim = 1 : tensor<3x{size}x{element}>")
        assert counts_along(value) == (1 if most is None or size <= most else None)
        del module


@pytest.mark.parametrize(
    ("element", "most"), [("bf16", 257), ("f16", 2049), ("f32", (1 << 21)), ("f64", (1 << 21))]
)
def test_a_count_goes_through_floats_that_hold_it(element: str, most: int) -> None:
    for size, known in ((most, True), (most + 1, element in ("f32", "f64"))):
        module, value = of_text(
            f"%0 = stablehlo.iota dim = 0 : tensor<{size}x{element}>\n"
            f"%1 = stablehlo.convert %0 : (tensor<{size}x{element}>) -> tensor<{size}xi32>"
        )
        assert (counts_along(value) == 0) == known
        del module


def test_of_a_choice_only_the_side_that_is_taken_must_be_known() -> None:
    module, value = of_text("""
      %zero = stablehlo.constant dense<0> : tensor<7xi32>
      %i = stablehlo.iota dim = 0 : tensor<7xi32>
      %any = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<i32>) -> tensor<7xi32>
      %wrapped = stablehlo.add %i, %any : tensor<7xi32>
      %below = stablehlo.compare LT, %i, %zero : (tensor<7xi32>, tensor<7xi32>) -> tensor<7xi1>
      %0 = stablehlo.select %below, %wrapped, %i : tensor<7xi1>, tensor<7xi32>""")
    assert counts_along(value) == 0
    del module


@pytest.mark.parametrize(
    "lines",
    [
        "%0 = stablehlo.constant dense<4> : tensor<i4>",
        "%0 = stablehlo.constant dense<0.5> : tensor<f32>",
        "%0 = stablehlo.constant dense<0x7FC00000> : tensor<f32>",
        "%0 = stablehlo.iota dim = 0 : tensor<8388608xi32>",
        "%1 = stablehlo.constant dense<2049> : tensor<i32>\n"
        "%0 = stablehlo.convert %1 : (tensor<i32>) -> tensor<f16>",
        "%1 = stablehlo.constant dense<300.0> : tensor<f32>\n"
        "%0 = stablehlo.convert %1 : (tensor<f32>) -> tensor<ui8>",
        "%1 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%0 = stablehlo.divide %1, %1 : tensor<i32>",
        "%1 = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%0 = stablehlo.compare LT, %1, %1, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>",
    ],
)
def test_nothing_is_said_of_what_is_no_exact_integer(lines: str) -> None:
    module, value = of_text(lines)
    assert Values().of(value) is None
    assert number_of(value) is None
    del module
