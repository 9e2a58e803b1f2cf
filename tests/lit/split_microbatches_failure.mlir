// RUN: not shardc-opt %s --passes=shardc-split-microbatches{count=4} --split-input-file 2>&1 | filecheck %s

// Each example is compared with all others, as in a contrastive loss.
// CHECK:      error[SHARDC-140]: microbatches would change the result: 'stablehlo.dot_general' needs the whole batch at once
// CHECK-NEXT: --> split_microbatches_failure.mlir:12
// CHECK-NEXT: help: use microbatches=1, or compute this per example or per microbatch
module {
  func.func public @contrastive(%w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32},
                                %x: tensor<8x3xf32>) -> tensor<3x3xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %pairs = stablehlo.dot_general %y, %y, contracting_dims = [1] x [1]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<8x8xf32>
    %z = stablehlo.tanh %pairs : tensor<8x8xf32>
    %d = stablehlo.dot_general %z, %y, contracting_dims = [0] x [0]
        : (tensor<8x8xf32>, tensor<8x3xf32>) -> tensor<8x3xf32>
    %g = stablehlo.dot_general %d, %x, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    return %g : tensor<3x3xf32>
  }
}

// -----

// A sum over the batch of what a product makes is needed before the next product, and so on: with
// a run of the microbatches for each, most of the work would be repeated.
// CHECK:      error[SHARDC-140]: microbatches would change the result: 'stablehlo.subtract' needs a sum over the whole batch, and 'stablehlo.dot_general' at split_microbatches_failure.mlir:38 depends on it
module {
  func.func public @deep_batch_norm(%w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32},
                                    %x: tensor<8x3xf32>) -> tensor<3x3xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum1 = stablehlo.reduce(%y1 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all1 = stablehlo.broadcast_in_dim %sum1, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z1 = stablehlo.subtract %y1, %all1 : tensor<8x3xf32>
    %y2 = stablehlo.dot_general %z1, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum2 = stablehlo.reduce(%y2 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all2 = stablehlo.broadcast_in_dim %sum2, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z2 = stablehlo.subtract %y2, %all2 : tensor<8x3xf32>
    %y3 = stablehlo.dot_general %z2, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum3 = stablehlo.reduce(%y3 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all3 = stablehlo.broadcast_in_dim %sum3, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z3 = stablehlo.subtract %y3, %all3 : tensor<8x3xf32>
    %y4 = stablehlo.dot_general %z3, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum4 = stablehlo.reduce(%y4 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all4 = stablehlo.broadcast_in_dim %sum4, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z4 = stablehlo.subtract %y4, %all4 : tensor<8x3xf32>
    %y5 = stablehlo.dot_general %z4, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum5 = stablehlo.reduce(%y5 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all5 = stablehlo.broadcast_in_dim %sum5, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z5 = stablehlo.subtract %y5, %all5 : tensor<8x3xf32>
    %y6 = stablehlo.dot_general %z5, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum6 = stablehlo.reduce(%y6 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all6 = stablehlo.broadcast_in_dim %sum6, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z6 = stablehlo.subtract %y6, %all6 : tensor<8x3xf32>
    %y7 = stablehlo.dot_general %z6, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum7 = stablehlo.reduce(%y7 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all7 = stablehlo.broadcast_in_dim %sum7, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z7 = stablehlo.subtract %y7, %all7 : tensor<8x3xf32>
    %y8 = stablehlo.dot_general %z7, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum8 = stablehlo.reduce(%y8 init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all8 = stablehlo.broadcast_in_dim %sum8, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %z8 = stablehlo.subtract %y8, %all8 : tensor<8x3xf32>
    %g = stablehlo.dot_general %z8, %x, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    return %g : tensor<3x3xf32>
  }
}
