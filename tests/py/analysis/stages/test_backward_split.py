"""What the later part of a backward function gets, and what it makes again."""

from shardc.analysis.stages.backward_split import split_backward
from shardc.cluster import Cluster, Device
from shardc.cost.model import CostModel
from shardc.ir.context import parse
from shardc.ir.walk import main_function

TEXT = """func.func @main(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %top = stablehlo.reduce(%z init: %zero) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %tops = stablehlo.broadcast_in_dim %top, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %sent = stablehlo.add %z, %tops : tensor<8x8xf32>
  %is = stablehlo.compare EQ, %z, %tops : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xi1>
  %own = stablehlo.select %is, %x, %w : tensor<8x8xi1>, tensor<8x8xf32>
  return %sent, %own : tensor<8x8xf32>, tensor<8x8xf32>
}"""
QUICK = Device("computes for nothing, moves hardly anything", 1 << 30, {"default": 1e18}, 1e3)


def test_what_is_compared_is_given_and_not_made_again() -> None:
    """A maximum of the first time is equal to no product of the second, which may round apart."""
    module = parse(TEXT)
    with module.context:
        found = split_backward(
            main_function(module.operation), [0], CostModel(Cluster("quick", QUICK, ()))
        )
        kept = [value.owner.name for value in found.kept]
        assert kept == ["stablehlo.dot_general", "stablehlo.reduce"]
        assert not {op.name for op in found.rest} & set(kept)


def test_constants_are_made_again() -> None:
    """Both parts sum from one zero. As an argument the later part could not know it, and its sums
    could not be split over devices."""
    text = """func.func @main(%x: tensor<8x8xbf16>, %w: tensor<8x8xbf16>)
        -> (tensor<8x8xbf16>, tensor<8xbf16>) {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero = stablehlo.constant dense<0.0> : tensor<bf16>
      %same = stablehlo.convert %one : (tensor<i32>) -> tensor<bf16>
      %ones = stablehlo.broadcast_in_dim %same, dims = [] : (tensor<bf16>) -> tensor<8x8xbf16>
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
      %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<8x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
      %rows = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<8xbf16>) -> tensor<8x8xbf16>
      %sent = stablehlo.add %rows, %ones : tensor<8x8xbf16>
      %more = stablehlo.multiply %y, %ones : tensor<8x8xbf16>
      %own = stablehlo.reduce(%more init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x8xbf16>, tensor<bf16>) -> tensor<8xbf16>
      return %sent, %own : tensor<8x8xbf16>, tensor<8xbf16>
    }"""
    module = parse(text)
    with module.context:
        model = CostModel(Cluster.load("h100-64"))
        found = split_backward(main_function(module.operation), [0], model)
        assert [value.owner.name for value in found.kept] == ["stablehlo.dot_general"]
        assert "stablehlo.constant" in {op.name for op in found.rest}
