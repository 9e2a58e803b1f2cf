// RUN: not shardc-opt %s --passes=shardc-slice-tokens 2>&1 | filecheck %s
// CHECK:      error[SHARDC-165]: the sequences cannot be cut into slices: 'stablehlo.dot_general' takes in tokens that come later
// CHECK-NEXT: --> slice_tokens_failure.mlir:19
// CHECK-NEXT: help: take a schedule that leaves sequences whole, such as "1f1b"; docs/schedules.md says which masks are known to be causal

// Attention without a mask: each query meets all keys.
module attributes {shardc.num_microbatches = 2 : i64, shardc.num_stages = 2 : i64} {
  func.func @stage0_forward(%x: tensor<8x2xf32> {shardc.value = "arg0"})
      -> (tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v0"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %x : tensor<8x2xf32>
    return %y : tensor<8x2xf32>
  }
  func.func @stage1_forward(%x: tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v0"})
      -> (tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
    %scores = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x8xf32>
    %weights = stablehlo.exponential %scores : tensor<8x8xf32>
    %mixed = stablehlo.dot_general %weights, %x, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x2xf32>) -> tensor<8x2xf32>
    return %mixed : tensor<8x2xf32>
  }
}
