// RUN: shardc-opt %s --passes=shardc-read-rows-in-place | filecheck %s
// RUN: shardc-opt %s --passes=shardc-read-rows-in-place,shardc-read-rows-in-place | filecheck %s

// The layers are the second dim of the parameter and the first of what the loop reads: the loop
// reads a row of the parameter and transposes that. What is made inside the loop stays.
// CHECK-LABEL: func.func @layers_second
//       CHECK:   stablehlo.while(%[[I:.*]] = %{{.*}}, %[[H:.*]] = %arg1)
//       CHECK:     %[[PART:.*]] = stablehlo.dynamic_slice %arg0, %[[ZERO:.*]], %[[I]], %[[ZERO]], sizes = [4, 1, 5]
//       CHECK:     %[[ROW:.*]] = stablehlo.transpose %[[PART]], dims = [1, 2, 0] : (tensor<4x1x5xf32>) -> tensor<1x5x4xf32>
//       CHECK:     stablehlo.reshape %[[ROW]]
//       CHECK:     %[[INNER:.*]] = stablehlo.transpose %[[H]]
//       CHECK:     stablehlo.dynamic_slice %[[INNER]]
func.func @layers_second(%w: tensor<4x3x5xf32>, %x: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %t = stablehlo.transpose %w, dims = [1, 2, 0] : (tensor<4x3x5xf32>) -> tensor<3x5x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<5x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %t, %i, %zero, %zero, sizes = [1, 5, 4]
      : (tensor<3x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x5x4xf32>) -> tensor<5x4xf32>
    %3 = stablehlo.transpose %h, dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
    %4 = stablehlo.dynamic_slice %3, %zero, %i, sizes = [4, 1]
      : (tensor<4x5xf32>, tensor<i32>, tensor<i32>) -> tensor<4x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<4x1xf32>) -> tensor<4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<4xf32>) -> tensor<5x4xf32>
    %7 = stablehlo.add %2, %6 : tensor<5x4xf32>
    %8 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %8, %7 : tensor<i32>, tensor<5x4xf32>
  }
  return %0#1 : tensor<5x4xf32>
}
