// RUN: not shardc-opt %s --passes=shardc-split-microbatches{count=4} --split-input-file 2>&1 | filecheck %s

// A sum over the batch of what a product makes is needed before the next product, twice in a row.
// CHECK:      error[SHARDC-140]: microbatches would change the result: 'stablehlo.subtract' needs a sum over the whole batch, and 'stablehlo.dot_general' at split_microbatches_failure.mlir:17 depends on it
// CHECK-NEXT: --> split_microbatches_failure.mlir:16
// CHECK-NEXT: help: use microbatches=1, or compute this per example or per microbatch
module {
  func.func public @batch_norm(%w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32},
                               %x: tensor<8x3xf32>) -> tensor<3x3xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %centred = stablehlo.subtract %y, %all : tensor<8x3xf32>
    %y2 = stablehlo.dot_general %centred, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum2 = stablehlo.reduce(%y2 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all2 = stablehlo.broadcast_in_dim %sum2, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %centred2 = stablehlo.subtract %y2, %all2 : tensor<8x3xf32>
    %g = stablehlo.dot_general %centred2, %x, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    return %g : tensor<3x3xf32>
  }
}
