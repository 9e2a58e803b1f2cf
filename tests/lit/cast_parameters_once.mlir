// RUN: shardc-opt %s --passes=shardc-cast-parameters-once | filecheck %s
// RUN: shardc-opt %s --passes=shardc-cast-parameters-once,shardc-cast-parameters-once | filecheck %s

// Both loops read rows of one copy of the parameter, which is state: the second result is its next
// value. Casts of the batch stay, and so do casts to wider types and those of carried values.
//       CHECK: module {{.*}}shardc.casts = 1
//       CHECK: func.func public @main
//       CHECK:   %[[COPY:.*]] = stablehlo.convert %arg0 {shardc.once} : (tensor<3x4x4xf32>) -> tensor<3x4x4xbf16>
//       CHECK:   stablehlo.while
//       CHECK:     %[[PART:.*]] = stablehlo.dynamic_slice %[[COPY]], {{.*}}, sizes = [1, 4, 4] : (tensor<3x4x4xbf16>,
//  CHECK-NEXT:     %[[ROW:.*]] = stablehlo.reshape %[[PART]] : (tensor<1x4x4xbf16>) -> tensor<4x4xbf16>
//   CHECK-NOT:     stablehlo.convert {{.*}}tensor<4x4xf32>) -> tensor<4x4xbf16>
//       CHECK:     stablehlo.convert {{.*}} : (tensor<8x4xf32>) -> tensor<8x4xbf16>
//  CHECK-NEXT:     %[[PRODUCT:.*]] = stablehlo.dot_general %{{.*}}, %[[ROW]]
//  CHECK-NEXT:     stablehlo.convert %[[PRODUCT]] : (tensor<8x4xbf16>) -> tensor<8x4xf32>
//       CHECK:   stablehlo.while
//       CHECK:     stablehlo.dynamic_slice %[[COPY]]
//       CHECK:     stablehlo.dynamic_slice %arg0, {{.*}} : (tensor<3x4x4xf32>,
//   CHECK-NOT:     stablehlo.convert {{.*}} -> tensor<4x4xbf16>
//       CHECK:     stablehlo.dynamic_slice %arg1, {{.*}} : (tensor<3x8x4xf32>,
//       CHECK:     stablehlo.convert {{.*}} -> tensor<8x4xbf16>
//       CHECK:   return
func.func public @main(%w: tensor<3x4x4xf32> {shardc.state_result = 1 : i32},
                       %x: tensor<3x8x4xf32> {shardc.batch_axis = array<i64: 0, 1, 8>})
    -> (tensor<8x4xf32>, tensor<3x4x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %start = stablehlo.constant dense<1.0> : tensor<8x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %h = %start) : tensor<i32>, tensor<8x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.convert %2 : (tensor<4x4xf32>) -> tensor<4x4xbf16>
    %4 = stablehlo.convert %h : (tensor<8x4xf32>) -> tensor<8x4xbf16>
    %5 = stablehlo.dot_general %4, %3, contracting_dims = [1] x [0]
      : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
    %6 = stablehlo.convert %5 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %6 : tensor<i32>, tensor<8x4xf32>
  }
  %8:3 = stablehlo.while(%i = %zero, %h = %0#1, %stack = %w) : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.convert %2 : (tensor<4x4xf32>) -> tensor<4x4xbf16>
    %4 = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 8, 4]
      : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %6 = stablehlo.convert %5 : (tensor<8x4xf32>) -> tensor<8x4xbf16>
    %7 = stablehlo.dot_general %6, %3, contracting_dims = [1] x [0]
      : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xf32>
    %9 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %10 = stablehlo.add %7, %9 : tensor<8x4xf32>
    %11 = stablehlo.dynamic_update_slice %stack, %1, %i, %zero, %zero
      : (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
    %12 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %12, %10, %11 : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  }
  return %8#1, %8#2 : tensor<8x4xf32>, tensor<3x4x4xf32>
}
