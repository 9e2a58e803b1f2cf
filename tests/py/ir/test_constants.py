"""The elements of constants are read where the bindings can and cannot."""

import pytest
from jax.extend.mlir import ir

from shardc.ir.constants import splat, splat_text, zeros
from shardc.ir.context import make_context
from shardc.ir.walk import body, main_function

# Of a sharded op: an op alone, outside of the module that declares the mesh, cannot be printed.
PROGRAM = """
sdy.mesh @stage0 = <["x"=2]>
func.func @main() {{
  %0 = stablehlo.constant {{sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{{"x"}}]>]>}} {value}
  return
}}
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("dense<(1.0,-2.5)> : tensor<4xcomplex<f32>>", "(1.000000e+00,-2.500000e+00)"),
        ("dense<[(1.0,0.0),(2.0,0.0)]> : tensor<2xcomplex<f32>>", None),
        ("dense<2.0> : tensor<4xf32>", "2.000000e+00 : f32"),
        ("dense<[1, 2]> : tensor<2xi32>", None),
    ],
)
def test_the_element_of_a_splat(value: str, text: str | None) -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAM.format(value=value))
        constant, _ = body(main_function(module.operation)).operations
        assert splat_text(constant.operation) == text


@pytest.mark.parametrize("element", ["f64", "bf16", "f8E4M3FN", "i1", "ui8", "i32", "complex<f32>"])
def test_zeros_of_all_element_types(element: str) -> None:
    with make_context(), ir.Location.file("step.py", 3, 1):
        module = ir.Module.parse("func.func @main() { return }")
        block = body(main_function(module.operation))
        with ir.InsertionPoint.at_block_begin(block):
            value = zeros(ir.Type.parse(f"tensor<2x3x{element}>"))
        assert splat(value) == 0
        assert str(value.type) == f"tensor<2x3x{element}>"
        assert "step.py" in str(value.owner.location)
        assert module.operation.verify()
