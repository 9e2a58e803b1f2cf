// RUN: shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"w\": \"-,x\", \"*\": \"x\"}, \"values\": {\"mlp/tanh\": \"x\", \"tanh\": \"-,x\"}}]"}' | filecheck %s

// Of the patterns that fit, the first counts: `*` says nothing of w. A batch argument lies as asked
// in each microbatch.
// CHECK-LABEL: func.func @stage0_forward
//  CHECK-SAME:   {shardc.asked = #sdy.sharding<@stage0, [{}, {"x"}, {}]>, shardc.value = "arg0"}
//  CHECK-SAME:   {shardc.asked = #sdy.sharding<@stage0, [{}, {"x"}]>, shardc.value = "arg1"}

// Ops are named by JAX's path to them, or by themselves.
//       CHECK:   dot_general
//  CHECK-NEXT:   stablehlo.tanh {{.*}} {shardc.asked = #sdy.sharding<@stage0, [{"x"}, {}]>}
//  CHECK-NEXT:   stablehlo.tanh {{.*}} {shardc.asked = #sdy.sharding<@stage0, [{}, {"x"}]>}
module attributes {
    shardc.num_stages = 1 : i64,
    shardc.arguments = [
      {batch_dim = 0 : i64, donated = false, name = "batch", stage = 0 : i64, type = tensor<2x64x64xf32>},
      {donated = false, name = "w", stage = 0 : i64, type = tensor<64x64xf32>}]} {
  sdy.mesh @stage0 = <["x"=4]>
  func.func @stage0_forward(
      %x: tensor<2x64x64xf32> {shardc.value = "arg0"},
      %w: tensor<64x64xf32> {shardc.value = "arg1"})
      -> (tensor<64x64xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %h = stablehlo.dot_general %w, %w, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %y = stablehlo.tanh %h : tensor<64x64xf32> loc("jit(step)/mlp/tanh")
    %z = stablehlo.tanh %y : tensor<64x64xf32> loc("jit(step)/other/tanh")
    return %z : tensor<64x64xf32>
  }
}
