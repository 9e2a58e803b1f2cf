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


# Of both layers, what the gradient needs stands on the way there.
LAYERS = """
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = stablehlo.tanh %x {shardc.direction = "forward"} : tensor<4xf32>
  %a2 = stablehlo.multiply %a, %a {shardc.direction = "backward"} : tensor<4xf32>
  %b = stablehlo.tanh %a {shardc.direction = "forward"} : tensor<4xf32>
  %b2 = stablehlo.multiply %b, %b {shardc.direction = "backward"} : tensor<4xf32>
  %c = stablehlo.sine %b {shardc.direction = "forward"} : tensor<4xf32>
  %e = stablehlo.cosine %c {shardc.direction = "backward"} : tensor<4xf32>
  %db = stablehlo.divide %e, %b2 {shardc.direction = "backward"} : tensor<4xf32>
  %da = stablehlo.subtract %db, %a2 {shardc.direction = "backward"} : tensor<4xf32>
  return %da : tensor<4xf32>
}
""".replace("{shardc", '{shardc.phase = "body", shardc.stage = 0, shardc')


def test_what_a_gradient_needs_of_a_layer_is_made_when_the_way_back_gets_there() -> None:
    module = parse(LAYERS.encode())
    with module.context:
        main = main_function(module.operation)
        e, b2, db, a2, da = stage_functions(main, in_place=True).functions[1].ops
        assert [e.name, db.name, da.name] == [
            f"stablehlo.{name}" for name in ("cosine", "divide", "subtract")
        ]
        assert (db.operands[1].owner, da.operands[1].owner) == (b2, a2)
