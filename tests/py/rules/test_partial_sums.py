"""Sums that a product widens: they wrap around, or overflow, before it and not behind it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from shardc.ir.context import parse
from shardc.ir.walk import main_function, ops
from shardc.rules.partial_sums import keeps_partial


@pytest.mark.parametrize(
    ("source", "target", "keeps"),
    [
        ("i8", "i8", True),
        ("i8", "i32", False),
        ("f16", "f16", True),
        ("f16", "f32", False),
        ("bf16", "f32", True),
        ("f32", "f64", False),
    ],
)
def test_a_product_keeps_sums_of_the_same_range(source: str, target: str, keeps: bool) -> None:
    number = "1" if source.startswith("i") else "1.0"
    module = parse(
        f"""func.func public @main(%x: tensor<4x4x{source}>) -> tensor<4x4x{target}> {{
        %c = stablehlo.constant dense<{number}> : tensor<4x4x{source}>
        %0 = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0]
            : (tensor<4x4x{source}>, tensor<4x4x{source}>) -> tensor<4x4x{target}>
        return %0 : tensor<4x4x{target}> }}"""
    )
    with module.context:
        product = ops(main_function(module.operation))[-1]
        assert keeps_partial(product, {0}, set()) == keeps


def test_a_product_that_rounds_its_operands_waits_for_the_sum() -> None:
    """bf16(1000.3) - bf16(999.2) is -4 or 0, and not bf16(1.1)."""
    module = parse(
        """func.func public @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
        %c = stablehlo.constant dense<1.0> : tensor<4x4xf32>
        %0 = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0], algorithm = <
            lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,
            lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
            allow_imprecise_accumulation = false>
            : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
        return %0 : tensor<4x4xf32> }"""
    )
    with module.context:
        product = ops(main_function(module.operation))[-1]
        assert not keeps_partial(product, {0}, set())


@pytest.mark.slow
def test_a_sum_of_bytes_wraps_around_before_a_wide_product() -> None:
    def step(w: Any, x: Any, numbers: Any) -> Any:
        total = jnp.sum(numbers, 0, dtype=jnp.int8)
        wide = lax.dot(total[None], jnp.ones((4, 3), jnp.int8), preferred_element_type=jnp.int32)
        return w, jnp.sum(jnp.tanh(x @ w) @ w), wide

    random = np.random.default_rng(0)
    args = np.eye(16), random.normal(size=(8, 16)), np.full((8, 4), 100, np.int8)
    expected = jax.jit(step)(*args)[2]
    got = shardc.jit(step, stages=1, microbatches=2)(*args)[2]
    np.testing.assert_array_equal(got, expected)
