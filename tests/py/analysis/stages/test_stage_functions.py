"""Which ops become which function of a stage."""

from shardc.analysis.stages.stage_functions import stage_functions
from shardc.ir.context import parse
from shardc.ir.walk import main_function

# Two stages, each adding up a parameter of its own from the same zero, which is a result as well.
SUMS = """
func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant {shardc.phase = "after", shardc.stage = 0} dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
      {shardc.phase = "after", shardc.stage = 0} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %t = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0]
      {shardc.phase = "after", shardc.stage = 1} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %s, %t, %zero : tensor<f32>, tensor<f32>, tensor<f32>
}
"""


def test_a_constant_that_is_returned_is_made_where_it_is_used_all_the_same() -> None:
    module = parse(SUMS.encode())
    with module.context:
        main = main_function(module.operation)
        first, second = stage_functions(main, in_place=True).functions
        assert [op.name for op in second.ops] == ["stablehlo.constant", "stablehlo.reduce"]
        assert second.inputs == [main.regions[0].blocks[0].arguments[1]]
        assert len(first.outputs) == 2
