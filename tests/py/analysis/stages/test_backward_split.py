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
