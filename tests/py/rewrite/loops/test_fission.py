"""A loop and the two that stand for it give the same, wherever it counts from."""

import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import counted_loop
from shardc.ir.context import parse
from shardc.ir.walk import block_terminator, defining_op, main_function, ops
from shardc.rewrite.loops.fission import fission

LOOP = """
func.func public @main() -> (tensor<{type}>, tensor<f32>) {{
  %start = stablehlo.constant dense<{start}> : tensor<{type}>
  %step = stablehlo.constant dense<{step}> : tensor<{type}>
  %end = stablehlo.constant dense<{end}> : tensor<{type}>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %0:2 = stablehlo.while(%i = %start, %total = %zero) : tensor<{type}>, tensor<f32>
  cond {{
    %1 = stablehlo.compare {direction}, %i, %end
      : (tensor<{type}>, tensor<{type}>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }} do {{
    %1 = stablehlo.convert %i : (tensor<{type}>) -> tensor<f32>
    %2 = stablehlo.multiply %total, %half : tensor<f32>
    %3 = stablehlo.add %2, %1 : tensor<f32>
    %4 = stablehlo.add %i, %step : tensor<{type}>
    stablehlo.return %4, %3 : tensor<{type}>, tensor<f32>
  }}
  return %0#0, %0#1 : tensor<{type}>, tensor<f32>
}}"""


@pytest.mark.parametrize(
    ("type_", "start", "step", "end"),
    [
        ("i32", 0, 1, 10),
        ("i32", 7, 3, 40),
        ("i8", -100, 1, 100),
        ("i8", -128, 2, 126),
        ("i8", 120, -1, -120),
        ("ui8", 55, 1, 255),
        ("i64", 9, -3, 0),
    ],
)
def test_two_loops_give_what_the_one_gave(type_: str, start: int, step: int, end: int) -> None:
    direction = "LT" if step > 0 else "GT"
    module = parse(LOOP.format(type=type_, start=start, step=step, end=end, direction=direction))
    before = evaluated(module)
    loop = next(op for op in ops(main_function(module.operation)) if op.name == "stablehlo.while")
    counted = counted_loop(loop)
    assert counted is not None
    assert (counted.start, counted.step) == (start, step)
    converted = defining_op(block_terminator(loop.regions[1].blocks[0]).operands[1]).operands[1]
    with module.context:
        fission(loop, counted, [converted], [1])
    assert str(module).count("stablehlo.while") == 2
    for one, two in zip(before, evaluated(module), strict=True):
        np.testing.assert_array_equal(one, two)


def evaluated(module: ir.Module) -> list[np.ndarray]:
    return [np.array(result) for result in stablehlo.eval_module(module, [])]
