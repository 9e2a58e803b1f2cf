// RUN: shardc-opt %s --passes=shardc-cast-parameters-once | filecheck %s
// RUN: shardc-opt %s --passes=shardc-cast-parameters-once,shardc-cast-parameters-once | filecheck %s

// The first loop stacks the rows that it casts, in their order: the second loop, which reads the
// stack backwards, reads the copy. A cast behind a barrier, and one outside of loops, read it too.
//       CHECK: module {{.*}}shardc.casts = 1
//       CHECK: func.func public @main
//       CHECK:   %[[COPY:.*]] = stablehlo.convert %arg0 {shardc.once}
//   CHECK-NOT:   stablehlo.convert
//       CHECK:   stablehlo.while(%{{.*}} = %{{.*}}, %{{[a-zA-Z0-9_]*}} = %{{[a-z0-9_]*}}) : tensor<i32>, tensor<8x4xbf16>
//       CHECK:     stablehlo.dynamic_slice %[[COPY]]
//   CHECK-NOT:     stablehlo.dynamic_update_slice
//       CHECK:   stablehlo.while
//       CHECK:     stablehlo.dynamic_slice %[[COPY]]
//   CHECK-NOT:     stablehlo.convert
//       CHECK:     stablehlo.return
//       CHECK:   stablehlo.reduce(%[[COPY]]
func.func public @main(%w: tensor<3x4x4xf32> {shardc.state_result = 1 : i32}, %x: tensor<8x4xbf16>)
    -> (tensor<8x4xbf16>, tensor<3x4x4xf32>, tensor<bf16>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<bf16>
  %empty = stablehlo.constant dense<0.0> : tensor<3x4x4xbf16>
  %0:3 = stablehlo.while(%i = %zero, %h = %x, %stack = %empty) : tensor<i32>, tensor<8x4xbf16>, tensor<3x4x4xbf16>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.convert %2 : (tensor<4x4xf32>) -> tensor<4x4xbf16>
    %4 = stablehlo.dot_general %h, %3, contracting_dims = [1] x [0]
      : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
    %5 = stablehlo.broadcast_in_dim %3, dims = [1, 2] : (tensor<4x4xbf16>) -> tensor<1x4x4xbf16>
    %6 = stablehlo.dynamic_update_slice %stack, %5, %i, %zero, %zero
      : (tensor<3x4x4xbf16>, tensor<1x4x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xbf16>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %4, %6 : tensor<i32>, tensor<8x4xbf16>, tensor<3x4x4xbf16>
  }
  %8:2 = stablehlo.while(%i = %zero, %h = %0#1) : tensor<i32>, tensor<8x4xbf16>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.subtract %two, %i : tensor<i32>
    %2 = stablehlo.dynamic_slice %0#2, %1, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xbf16>
    %3 = stablehlo.reshape %2 : (tensor<1x4x4xbf16>) -> tensor<4x4xbf16>
    %4 = stablehlo.dynamic_slice %w, %1, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %5:2 = stablehlo.optimization_barrier %4, %h : tensor<1x4x4xf32>, tensor<8x4xbf16>
    %6 = stablehlo.reshape %5#0 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.convert %6 : (tensor<4x4xf32>) -> tensor<4x4xbf16>
    %9 = stablehlo.add %3, %7 : tensor<4x4xbf16>
    %10 = stablehlo.dot_general %5#1, %9, contracting_dims = [1] x [0]
      : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
    %11 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %11, %10 : tensor<i32>, tensor<8x4xbf16>
  }
  %12 = stablehlo.convert %w : (tensor<3x4x4xf32>) -> tensor<3x4x4xbf16>
  %13 = stablehlo.reduce(%12 init: %none) applies stablehlo.add across dimensions = [0, 1, 2]
    : (tensor<3x4x4xbf16>, tensor<bf16>) -> tensor<bf16>
  return %8#1, %w, %13 : tensor<8x4xbf16>, tensor<3x4x4xf32>, tensor<bf16>
}
