// RUN: shardc-opt %s --passes=shardc-cast-parameters-once | filecheck %s
// RUN: shardc-opt %s --passes=shardc-cast-parameters-once,shardc-cast-parameters-once | filecheck %s

// A cast of a cast: of each there is a copy. The first is read by nothing but the second.
//       CHECK: module {{.*}}shardc.casts = 2
//       CHECK:   %[[FIRST:.*]] = stablehlo.convert %arg0 {shardc.once} : (tensor<3x4x4xf64>) -> tensor<3x4x4xf32>
//  CHECK-NEXT:   %[[SECOND:.*]] = stablehlo.convert %[[FIRST]] {shardc.once} : (tensor<3x4x4xf32>) -> tensor<3x4x4xbf16>
//       CHECK:   stablehlo.while
//   CHECK-NOT:     stablehlo.convert
//       CHECK:     stablehlo.dynamic_slice %[[SECOND]]
//   CHECK-NOT:     stablehlo.convert
//       CHECK:   return
func.func public @main(%w: tensor<3x4x4xf64> {shardc.state_result = 1 : i32}, %x: tensor<8x4xbf16>)
    -> (tensor<8x4xbf16>, tensor<3x4x4xf64>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<8x4xbf16>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4]
      : (tensor<3x4x4xf64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf64>
    %2 = stablehlo.convert %1 : (tensor<1x4x4xf64>) -> tensor<1x4x4xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %4 = stablehlo.convert %3 : (tensor<4x4xf32>) -> tensor<4x4xbf16>
    %5 = stablehlo.dot_general %h, %4, contracting_dims = [1] x [0]
      : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
    %6 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %6, %5 : tensor<i32>, tensor<8x4xbf16>
  }
  return %0#1, %w : tensor<8x4xbf16>, tensor<3x4x4xf64>
}
