"""Updates run one parameter after the other."""

from shardc.analysis.stages.update_order import leaf_by_leaf
from shardc.ir.context import parse
from shardc.ir.walk import main_function, ops

# Two parameters, step by step for both as optimizers are written; both wait for one norm.
BREADTH_FIRST = """
func.func @main(%a: tensor<4xf32>, %b: tensor<8xf32>, %zero: tensor<f32>)
    -> (tensor<4xf32>, tensor<8xf32>) {
  %0 = stablehlo.multiply %a, %a : tensor<4xf32>
  %1 = stablehlo.multiply %b, %b : tensor<8xf32>
  %2 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  %4 = stablehlo.add %2, %3 : tensor<f32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %6 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<8xf32>
  %7 = stablehlo.divide %a, %5 : tensor<4xf32>
  %8 = stablehlo.divide %b, %6 : tensor<8xf32>
  %9 = stablehlo.negate %7 : tensor<4xf32>
  %10 = stablehlo.negate %8 : tensor<8xf32>
  return %9, %10 : tensor<4xf32>, tensor<8xf32>
}
"""


def test_the_steps_of_one_parameter_come_together_behind_what_they_wait_for() -> None:
    module = parse(BREADTH_FIRST.encode())
    with module.context:
        own = ops(main_function(module.operation))
        order = [own.index(op) for op in leaf_by_leaf(own, lambda op: list(op.operands))]
    assert order == [0, 2, 1, 3, 4, 5, 7, 9, 6, 8, 10]
