// RUN: shardc-opt %s --passes=shardc-cut-loops | filecheck %s --check-prefix=WHOLE
// RUN: shardc-opt %s --passes='shardc-cut-loops{at=1}' | filecheck %s
// RUN: shardc-opt %s --passes='shardc-cut-loops{at=1},shardc-cut-loops{at=2}' | filecheck %s

// Without cuts every op only gets its mark.
// WHOLE-LABEL: func.func @main(%arg0: tensor<3x4x4xf32>
//       WHOLE:   stablehlo.while{{.*}}shardc.origin = array<i64: 4, 0>
//   WHOLE-NOT:   stablehlo.while

// Layers 0 and 1..2 become two loops. Each has its rows of the weights, which come and go as two
// arguments and results; row numbers are shifted, and the counter goes on counting.
// CHECK-LABEL: func.func @main
//  CHECK-SAME:   (%arg0: tensor<1x4x4xf32> {{{.*}}tf.aliasing_output = 0{{.*}}}, %arg1: tensor<2x4xf32>
//  CHECK-SAME:    %arg2: tensor<2x4x4xf32> {{{.*}}rows 1:3{{.*}}shardc.piece = array<i64: 0, 0>{{.*}}tf.aliasing_output = 2
//  CHECK-SAME:   -> (tensor<1x4x4xf32>, tensor<2x4xf32>, tensor<2x4x4xf32> {shardc.piece = array<i64: 0, 0>})
//       CHECK:   %[[FIRST:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %{{.*}} = %arg1)
//       CHECK:     %[[ROW:.*]] = stablehlo.subtract %[[I]],
//       CHECK:     dynamic_slice %arg0, %[[ROW]],
//       CHECK:   %[[ONE:.*]] = stablehlo.constant {{.*}}dense<1>
//       CHECK:   %[[THREE:.*]] = stablehlo.constant {{.*}}dense<3>
//       CHECK:   %[[SECOND:.*]]:2 = stablehlo.while(%[[J:.*]] = %[[ONE]], %{{.*}} = %[[FIRST]]#1)
//       CHECK:     stablehlo.compare LT, %[[J]], %[[THREE]]
//       CHECK:     %[[ROW:.*]] = stablehlo.subtract %[[J]],
//       CHECK:     dynamic_slice %arg2, %[[ROW]],
//       CHECK:   %[[HALF0:.*]] = stablehlo.multiply %arg0
//       CHECK:   %[[HALF1:.*]] = stablehlo.multiply %arg2
//       CHECK:   return %[[HALF0]], %[[SECOND]]#1, %[[HALF1]]
func.func @main(%w: tensor<3x4x4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<2x4xf32>)
    -> (tensor<3x4x4xf32>, tensor<2x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<3x4x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<2x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0]
      : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %4 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %4, %3 : tensor<i32>, tensor<2x4xf32>
  }
  %5 = stablehlo.multiply %w, %half : tensor<3x4x4xf32>
  return %5, %0#1 : tensor<3x4x4xf32>, tensor<2x4xf32>
}
