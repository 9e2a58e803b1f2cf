// RUN: shardc-opt %s --passes=shardc-find-batch --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-find-batch,shardc-find-batch --split-input-file | filecheck %s

// The rows of %x and of %y are one batch: they meet in the difference. The columns of %x are what the
// product contracts, those of %w its features.
// CHECK-LABEL: func.func public @rows_of_examples_and_labels
//  CHECK-SAME:   %arg0: tensor<3x5xf32> {tf.aliasing_output = 0 : i32}
//  CHECK-SAME:   %arg1: tensor<8x3xf32> {shardc.batch_axis = array<i64: 0, 0, 8>}
//  CHECK-SAME:   %arg2: tensor<8x5xf32> {shardc.batch_axis = array<i64: 0, 0, 8>}
module {
  func.func public @rows_of_examples_and_labels(
      %w: tensor<3x5xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8x3xf32>, %y: tensor<8x5xf32>)
      -> tensor<3x5xf32> {
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32>
    %d = stablehlo.subtract %p, %y : tensor<8x5xf32>
    %g = stablehlo.dot_general %x, %d, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x5xf32>) -> tensor<3x5xf32>
    return %g : tensor<3x5xf32>
  }
}

// -----

// Labelled and unlabelled examples only meet in the sum of two gradients: the second batch is cut as
// well where the number of microbatches divides its four rows.
// CHECK-LABEL: func.func public @two_batches
//  CHECK-SAME:   %arg1: tensor<8x3xf32> {shardc.batch_axis = array<i64: 0, 0, 8>}
//  CHECK-SAME:   %arg2: tensor<4x3xf32> {shardc.batch_axis = array<i64: 1, 0, 4>}
module {
  func.func public @two_batches(
      %w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8x3xf32>, %u: tensor<4x3xf32>)
      -> tensor<3x3xf32> {
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %g = stablehlo.dot_general %x, %p, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    %q = stablehlo.dot_general %u, %w, contracting_dims = [1] x [0]
        : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
    %h = stablehlo.dot_general %u, %q, contracting_dims = [0] x [0]
        : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    %s = stablehlo.add %g, %h : tensor<3x3xf32>
    return %s : tensor<3x3xf32>
  }
}

// -----

// A step without a batch is left alone.
// CHECK-LABEL: func.func public @no_batch
//   CHECK-NOT:   shardc.batch_axis
module {
  func.func public @no_batch(%x: tensor<f32>) -> tensor<f32> {
    %y = stablehlo.tanh %x : tensor<f32>
    return %y : tensor<f32>
  }
}
