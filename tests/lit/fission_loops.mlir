// RUN: shardc-opt %s --split-input-file --passes=shardc-fission-loops{batch-args=0} | filecheck %s
// RUN: shardc-opt %s --split-input-file --passes=shardc-fission-loops{batch-args=0},shardc-fission-loops{batch-args=0} | filecheck %s

// Each layer multiplies two sums over the batch (%arg0) with each other. The first loop makes what the
// layers hand on and stacks up the sums, the second one reads them and adds the products up.
//       CHECK: module attributes {shardc.fissions = 1 : i64}
// CHECK-LABEL: func.func public @main
//       CHECK:   %[[FIRST:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %[[H:.*]] = %arg0, %[[STACK:.*]] = %{{.*}}) : tensor<i32>, tensor<8x4xf32>, tensor<3x4xf32>
//       CHECK:     %[[SUM:.*]] = stablehlo.reduce(%[[H]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
//       CHECK:     %[[ROW:.*]] = stablehlo.reshape %[[SUM]] : (tensor<4xf32>) -> tensor<1x4xf32>
//       CHECK:     %[[NEXT:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %[[ROW]]
//       CHECK:     stablehlo.return %{{.*}}, %{{.*}}, %[[NEXT]]
//       CHECK:   %[[SECOND:.*]]:2 = stablehlo.while(%{{.*}} = %{{.*}}, %[[TOTAL:.*]] = %{{.*}}) : tensor<i32>, tensor<f32>
//       CHECK:     %[[READ:.*]] = stablehlo.dynamic_slice %[[FIRST]]#2
//       CHECK:     %[[WHOLE:.*]] = stablehlo.reshape %[[READ]] : (tensor<1x4xf32>) -> tensor<4xf32>
//   CHECK-NOT:     stablehlo.dot_general
//       CHECK:     stablehlo.multiply %[[WHOLE]], %[[WHOLE]]
//       CHECK:   return %[[FIRST]]#1, %[[SECOND]]#1
func.func public @main(%x: tensor<8x4xf32>, %w: tensor<3x4x4xf32>)
    -> (tensor<8x4xf32>, tensor<f32>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %i3 = stablehlo.constant dense<3> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0:3 = stablehlo.while(%i = %i0, %h = %x, %total = %zero)
    : tensor<i32>, tensor<8x4xf32>, tensor<f32>
  cond {
    %1 = stablehlo.compare LT, %i, %i3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.reduce(%h init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.multiply %1, %1 : tensor<4xf32>
    %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %4 = stablehlo.add %total, %3 : tensor<f32>
    %5 = stablehlo.dynamic_slice %w, %i, %i0, %i0, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.dot_general %h, %6, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %8 = stablehlo.add %i, %i1 : tensor<i32>
    stablehlo.return %8, %7, %4 : tensor<i32>, tensor<8x4xf32>, tensor<f32>
  }
  return %0#1, %0#2 : tensor<8x4xf32>, tensor<f32>
}

// -----

// Each layer needs a sum over the batch of what the one before made of such a sum: nothing can be
// taken out.
//       CHECK: module {
// CHECK-LABEL: func.func public @main
//       CHECK:   stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0) : tensor<i32>, tensor<8x4xf32>
//   CHECK-NOT:   stablehlo.while
func.func public @main(%x: tensor<8x4xf32>, %w: tensor<3x4x4xf32>) -> tensor<8x4xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i1 = stablehlo.constant dense<1> : tensor<i32>
  %i3 = stablehlo.constant dense<3> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0:2 = stablehlo.while(%i = %i0, %h = %x) : tensor<i32>, tensor<8x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %i3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.reduce(%h init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.subtract %h, %2 : tensor<8x4xf32>
    %5 = stablehlo.dynamic_slice %w, %i, %i0, %i0, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.dot_general %3, %6, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %8 = stablehlo.add %i, %i1 : tensor<i32>
    stablehlo.return %8, %7 : tensor<i32>, tensor<8x4xf32>
  }
  return %0#1 : tensor<8x4xf32>
}
