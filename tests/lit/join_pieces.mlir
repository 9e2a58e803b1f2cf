// RUN: shardc-opt %s --split-input-file --passes=shardc-join-pieces --verify-each | filecheck %s
// RUN: shardc-opt %s --split-input-file --passes=shardc-join-pieces,shardc-join-pieces | filecheck %s

// Four pieces of two rows: what they add up is added up by eight rows, an invariant term four times;
// rows that are written one piece after the other are written at once; of a stack that is only
// summed, the sum is left.
//       CHECK: module attributes {shardc.joined = 1 : i64}
// CHECK-LABEL: func.func public @main
//   CHECK-NOT:   stablehlo.while
//       CHECK:   %[[WIDE:.*]] = stablehlo.reshape %arg0 : (tensor<8x3xf32>) -> tensor<1x8x3xf32>
//       CHECK:   %[[ROWS:.*]] = stablehlo.reshape %[[WIDE]] : (tensor<1x8x3xf32>) -> tensor<8x3xf32>
//       CHECK:   %[[OUT:.*]] = stablehlo.dot_general %[[ROWS]], %arg1
//       CHECK:   %[[LOSS:.*]] = stablehlo.reduce(%[[OUT]]
//       CHECK:   %[[GRADIENT:.*]] = stablehlo.dot_general %[[ROWS]], %[[OUT]]
//       CHECK:   %[[FOUR:.*]] = stablehlo.constant dense<4.000000e+00>
//       CHECK:   %[[TIMES:.*]] = stablehlo.multiply %arg1, %[[FOUR]]
//       CHECK:   %[[SUM:.*]] = stablehlo.add %[[GRADIENT]], %[[TIMES]]
//       CHECK:   %[[ONE:.*]] = stablehlo.reshape %[[LOSS]] : (tensor<f32>) -> tensor<1xf32>
//       CHECK:   %[[TOTAL:.*]] = stablehlo.reduce(%[[ONE]]
//       CHECK:   return %[[SUM]], %{{.*}}, %[[TOTAL]]
func.func public @main(%x: tensor<8x3xf32>, %w: tensor<3x3xf32>)
    -> (tensor<3x3xf32>, tensor<4x2x3xf32>, tensor<f32>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %i4 = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x3xf32>
  %rows = stablehlo.constant dense<0.0> : tensor<4x2x3xf32>
  %losses = stablehlo.constant dense<0.0> : tensor<4xf32>
  %pieces = stablehlo.reshape %x : (tensor<8x3xf32>) -> tensor<4x2x3xf32>
  %0:4 = stablehlo.while(%i = %i0, %g = %zeros, %o = %rows, %l = %losses)
    : tensor<i32>, tensor<3x3xf32>, tensor<4x2x3xf32>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %i4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %pieces, %i, %i0, %i0, sizes = [1, 2, 3]
      : (tensor<4x2x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x3xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2x3xf32>) -> tensor<2x3xf32>
    %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0]
      : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
    %5 = stablehlo.dot_general %2, %3, contracting_dims = [0] x [0]
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>
    %6 = stablehlo.add %5, %w : tensor<3x3xf32>
    %7 = stablehlo.add %g, %6 : tensor<3x3xf32>
    %8 = stablehlo.reshape %3 : (tensor<2x3xf32>) -> tensor<1x2x3xf32>
    %9 = stablehlo.dynamic_update_slice %o, %8, %i, %i0, %i0
      : (tensor<4x2x3xf32>, tensor<1x2x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x3xf32>
    %10 = stablehlo.reshape %4 : (tensor<f32>) -> tensor<1xf32>
    %11 = stablehlo.dynamic_update_slice %l, %10, %i
      : (tensor<4xf32>, tensor<1xf32>, tensor<i32>) -> tensor<4xf32>
    %12 = stablehlo.add %i, %i1 : tensor<i32>
    stablehlo.return %12, %7, %9, %11 : tensor<i32>, tensor<3x3xf32>, tensor<4x2x3xf32>, tensor<4xf32>
  }
  %13 = stablehlo.reduce(%0#3 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %0#1, %0#2, %13 : tensor<3x3xf32>, tensor<4x2x3xf32>, tensor<f32>
}

// -----

// A factor of each piece's own, and the square of a sum over a piece: left alone.
// CHECK-LABEL: func.func public @main
//       CHECK:   stablehlo.while
//       CHECK:   stablehlo.while
func.func public @main(%x: tensor<8x3xf32>, %w: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %i2 = stablehlo.constant dense<2> : tensor<i32>
  %i4 = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x3xf32>
  %none = stablehlo.constant dense<0.0> : tensor<3xf32>
  %0:2 = stablehlo.while(%i = %i0, %g = %zeros) : tensor<i32>, tensor<3x3xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %i4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.multiply %i, %i2 : tensor<i32>
    %2 = stablehlo.dynamic_slice %x, %1, %i0, sizes = [2, 3]
      : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    %3 = stablehlo.dot_general %2, %2, contracting_dims = [0] x [0]
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>
    %4 = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<3x3xf32>
    %6 = stablehlo.multiply %3, %5 : tensor<3x3xf32>
    %7 = stablehlo.add %g, %6 : tensor<3x3xf32>
    %8 = stablehlo.add %i, %i1 : tensor<i32>
    stablehlo.return %8, %7 : tensor<i32>, tensor<3x3xf32>
  }
  %9:2 = stablehlo.while(%i = %i0, %g = %none) : tensor<i32>, tensor<3xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %i4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.multiply %i, %i2 : tensor<i32>
    %2 = stablehlo.dynamic_slice %x, %1, %i0, sizes = [2, 3]
      : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
    %4 = stablehlo.multiply %3, %3 : tensor<3xf32>
    %5 = stablehlo.add %g, %4 : tensor<3xf32>
    %6 = stablehlo.add %i, %i1 : tensor<i32>
    stablehlo.return %6, %5 : tensor<i32>, tensor<3xf32>
  }
  %10 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
    : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
  %11 = stablehlo.multiply %0#1, %10 : tensor<3x3xf32>
  return %11, %9#1 : tensor<3x3xf32>, tensor<3xf32>
}
