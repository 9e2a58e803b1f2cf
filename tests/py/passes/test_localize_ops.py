"""Proof of the table of ops that may run on parts: each entry, split in every way it allows."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc.analysis.shardings.strategies import Strategy
from shardc.ir.attributes import ACCUMULATE
from shardc.ir.calls import CALL
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import defining_op, main_function, ops
from shardc.passes.pin_layouts import PinLayouts
from shardc.plan.layout import Mesh
from shardc.rules.allowed_factors import ALLOWED, ALLOWED_BY_INDEX
from tests.py.passes.localizable_ops import OPS, program
from tests.py.passes.localizable_sums import ONLY_XLA, SUMS
from tests.py.passes.on_devices import run_local, run_whole
from tests.py.passes.one_op import (
    MESH,
    accepted,
    annotated,
    arguments,
    localized,
    strategies,
    target_of,
)

IDENTITY = program(
    "%a: tensor<4x8xf32>",
    "tensor<4x8xf32>",
    f"""%0 = stablehlo.custom_call @{ACCUMULATE}(%a) {{target}}
      : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>""",
)


@pytest.fixture(autouse=True)
def with_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def check(text: str, found: Sequence[Strategy], mesh: Mesh = MESH, *, xla: bool = False) -> None:
    """Compares each strategy of the target with the whole program."""
    module = parse(text)
    run_passes(module, [PinLayouts()])  # without them XLA fails on some FFTs
    args = arguments(module)
    expected = run_whole(module, args, xla=xla)
    for strategy in found:
        local = localized(annotated(text, strategy, mesh))
        for got, want in zip(run_local(local, mesh, args, xla=xla), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str(strategy))


def planned(text: str) -> list[Strategy]:
    """All strategies of the target."""
    module = parse(text)
    return strategies(*target_of(module))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OPS, *SUMS])
def test_parts_of_the_op_make_the_whole(name: str) -> None:
    text = (OPS | SUMS)[name]
    check(text, planned(text))


@pytest.mark.parametrize("name", [*OPS, *SUMS])
def test_what_is_not_refused_makes_the_whole(name: str) -> None:
    """Every layout of operands and results on one axis, whether a planner would think of it."""
    text, mesh = (OPS | SUMS)[name], Mesh((("x", 2),), (0, 1))
    module = parse(text)
    op, rule = target_of(module)
    found = accepted(op, rule, mesh)
    known = {(s.operands, s.results, s.reduce_axes) for s in found}
    assert {(s.operands, s.results, s.reduce_axes) for s in strategies(op, rule, mesh)} <= known
    check(text, found, mesh)


@pytest.mark.parametrize("name", ["gather_by_unsigned", "scatter_add", "scatter_points"])
def test_indices_relative_to_a_part_are_not_called_sorted(name: str) -> None:
    plain, told = "index_vector_dim = 1>", "index_vector_dim = 1>, indices_are_sorted = true"
    text = SUMS[name].replace(plain, told)
    sorted_of_shifted: dict[bool, set[bool]] = {}
    for strategy in planned(text):
        local = localized(annotated(text, strategy))
        inside = ops(main_function(local.operation))
        op = next(op for op in inside if "indices_are_sorted" in op.attributes)
        maker = defining_op(op.operands[1])
        shifted = maker is not None and maker.name == "stablehlo.subtract"
        said = bool(ir.BoolAttr(op.attributes["indices_are_sorted"]).value)
        sorted_of_shifted.setdefault(shifted, set()).add(said)
    assert sorted_of_shifted == {True: {False}, False: {True}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLY_XLA)
def test_parts_make_the_whole_under_xla(name: str) -> None:
    check(ONLY_XLA[name], planned(ONLY_XLA[name]), xla=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dot_general", "reduce_max", "gather_rows", "scatter_in_batches"])
def test_xla_agrees_with_the_interpreter(name: str) -> None:
    check(SUMS[name], planned(SUMS[name]), xla=True)


def test_accumulate_works_like_an_identity() -> None:
    module = parse(IDENTITY)
    for strategy in planned(IDENTITY):
        local = localized(annotated(IDENTITY, strategy))
        (call,) = [op for op in ops(main_function(local.operation)) if "custom" in op.name]
        call.results[0].replace_all_uses_with(call.operands[0])
        call.erase()
        args = arguments(module)
        np.testing.assert_array_equal(run_local(local, MESH, args)[0], args[0])


def split_factors(text: str) -> set[tuple[str, str]]:
    """(op, kind) of each factor that some strategy of the target splits."""
    module = parse(text)
    op, rule = target_of(module)
    assert rule is not None
    return {
        (op.name, rule.kinds[factor].value)
        for strategy in strategies(op, rule)
        for mapping, sharding in [
            *zip(rule.operands, strategy.operands, strict=True),
            *zip(rule.results, strategy.results, strict=True),
        ]
        for factors, axes in zip(mapping, sharding.dims, strict=True)
        if axes
        for factor in factors[:1]
    }


def test_each_entry_of_the_table_is_proved() -> None:
    texts = [*OPS.values(), *SUMS.values(), *ONLY_XLA.values(), IDENTITY]
    handed_on = {
        (CONSTRAINT, "pass_through"),  # tests/py/planner/test_sharding_conflicts.py
        (CALL, "pass_through"),  # tests/py/end_to_end/test_calls.py
    }
    assert (
        set().union(*map(split_factors, texts))
        == (set(ALLOWED) | set(ALLOWED_BY_INDEX)) - handed_on
    )


# Initial values that would count twice, reducers that do not combine, windows, chosen rows:
# (operand, dim) that no strategy may split.
WHOLE = {
    "reduce_sum_from_one": {(0, 1)},
    "reduce_product_from_two": {(0, 1)},
    "reduce_or_of_bits": {(0, 1)},
    "reduce_xor": {(0, 1)},
    "argmax": {(0, 1), (1, 1)},
    "scatter_add": {(1, 0), (2, 0)},
    "scatter_max": {(1, 0), (2, 0)},
    "scatter_windows": {(0, 0), (0, 1)},
    "gather_windows": {(0, 0)},
    "gather_booleans": {(0, 0)},
    "convolution_whole_window": {(0, 1), (0, 2), (1, 0), (1, 1)},
    "convolution_in_groups": {(0, 1), (0, 2), (1, 2)},
    "convolution_in_batch_groups": {(0, 1), (0, 2)},
    "cumulative_sum": {(0, 1)},
    "window_shifted": {(0, 1)},
    "window_over_dilated_base": {(0, 1)},
    "sort": {(0, 1), (1, 1)},
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_would_be_wrong_is_not_split(name: str) -> None:
    module = parse(SUMS[name])
    split = {
        (position, dim)
        for strategy in strategies(*target_of(module))
        for position, sharding in enumerate(strategy.operands)
        for dim, axes in enumerate(sharding.dims)
        if axes
    }
    assert not split & WHOLE[name]
