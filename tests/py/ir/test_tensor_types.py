"""Names and bytes of element types agree with NumPy and ml_dtypes."""

import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir

from shardc.ir.attributes import int_attr
from shardc.ir.context import parse
from shardc.ir.tensor_types import dtype_of, is_float, itemsize, num_bytes, num_elements, shape_of
from shardc.ir.walk import body, main_function

TYPES = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f64": "float64",
    "i1": "bool",
    "i32": "int32",
    "ui8": "uint8",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}


@pytest.mark.parametrize("text", TYPES)
def test_tensor(text):
    module = parse(f"func.func @main(%a: tensor<2x3x{text}>) {{ return }}")
    argument = body(main_function(module.operation)).arguments[0]
    dtype = dtype_of(argument)
    assert dtype == TYPES[text]
    assert itemsize(dtype) == jnp.dtype(dtype).itemsize
    assert is_float(argument) == jnp.issubdtype(jnp.dtype(dtype), jnp.inexact)
    assert shape_of(argument) == (2, 3)
    assert num_bytes(argument) == 6 * jnp.dtype(dtype).itemsize


def test_token_has_no_elements():
    module = parse("func.func @main(%a: !stablehlo.token) { return }")
    argument = body(main_function(module.operation)).arguments[0]
    assert (shape_of(argument), dtype_of(argument), num_elements(argument)) == ((), "", 0)


def test_what_is_said_of_an_erased_value_is_not_said_of_the_next_one():
    """MLIR soon gives its address to another value."""
    module = parse("func.func @main() { return }")
    with module.context, ir.Location.unknown():
        types = [ir.RankedTensorType.parse(f"tensor<2x{name}>") for name in ("f32", "i32")]
        for number in range(100):
            type_ = types[number % 2]
            with ir.InsertionPoint.at_block_begin(body(main_function(module.operation))):
                made = ir.Operation.create(
                    "stablehlo.iota", [type_], attributes={"iota_dimension": int_attr(0)}
                )
            assert is_float(made.results[0]) == (type_ == types[0])
            made.erase()
