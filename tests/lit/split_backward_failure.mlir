// RUN: not shardc-opt %s --passes=shardc-split-backward 2>&1 | filecheck %s
// CHECK:      error[SHARDC-163]: no weight gradient can be computed apart from the gradient that a stage sends back: 'stablehlo.dot_general' is in front of both
// CHECK-NEXT: --> {{.*}}split_backward_failure.mlir:19
// CHECK-NEXT: help: take a schedule that does not split the backward, such as 1f1b

// The stage has one product, and what the stage before waits for needs it.
func.func @stage0_backward(%g: tensor<4x4xf32> {shardc.per_microbatch, shardc.value = "v2"},
    %acc: tensor<4x4xf32> {shardc.value = "acc0"}) -> (tensor<4x4xf32> {shardc.value = "acc0"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %sum = stablehlo.add %acc, %g : tensor<4x4xf32>
  return %sum : tensor<4x4xf32>
}

func.func @stage1_backward(%x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v1"},
    %acc: tensor<4x4xf32> {shardc.value = "acc1"})
    -> (tensor<4x4xf32> {shardc.value = "acc1"}, tensor<4x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {

  %dw = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %sum = stablehlo.add %acc, %dw : tensor<4x4xf32>
  return %sum, %dw : tensor<4x4xf32>, tensor<4x4xf32>
}
