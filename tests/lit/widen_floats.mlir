// RUN: shardc-opt %s --passes=shardc-widen-floats | filecheck %s
// RUN: shardc-opt %s --passes=shardc-widen-floats,shardc-widen-floats | filecheck %s
// RUN: shardc-opt %s --passes='shardc-widen-floats{types=f32}' | filecheck %s --check-prefix=F32

// Arguments, results and values inside regions become float64; a constant keeps its digits.
// CHECK-LABEL: func.func @sum(%arg0: tensor<4xf64>) -> tensor<f64>
//       CHECK:   %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       CHECK:   %[[WIDE:.*]] = stablehlo.convert %[[ZERO]] : (tensor<f32>) -> tensor<f64>
//       CHECK:   stablehlo.reduce(%arg0 init: %[[WIDE]]) applies stablehlo.add across dimensions = [0] : (tensor<4xf64>, tensor<f64>) -> tensor<f64>
func.func @sum(%a: tensor<4xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// Rounding to bf16 disappears, unless only f32 is widened.
// CHECK-LABEL: func.func @rounded(%arg0: tensor<4xf64>) -> tensor<4xf64>
//  CHECK-NEXT:   stablehlo.add %arg0, %arg0 : tensor<4xf64>
//   F32-LABEL: func.func @rounded
//         F32:   stablehlo.convert %arg0 : (tensor<4xf64>) -> tensor<4xbf16>
func.func @rounded(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce_precision %a, format = e8m7 : tensor<4xf32>
  %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xbf16>
  %2 = stablehlo.add %1, %1 : tensor<4xbf16>
  %3 = stablehlo.convert %2 : (tensor<4xbf16>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Random numbers are made of bits, whose types stay.
// CHECK-LABEL: func.func @bits(%arg0: tensor<4xui32>) -> tensor<4xf64>
//  CHECK-NEXT:   %[[FLOAT:.*]] = stablehlo.bitcast_convert %arg0 : (tensor<4xui32>) -> tensor<4xf32>
//  CHECK-NEXT:   %[[WIDE:.*]] = stablehlo.convert %[[FLOAT]] : (tensor<4xf32>) -> tensor<4xf64>
//  CHECK-NEXT:   return %[[WIDE]]
func.func @bits(%a: tensor<4xui32>) -> tensor<4xf32> {
  %0 = stablehlo.bitcast_convert %a : (tensor<4xui32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A library routine is given what it was written for.
// CHECK-LABEL: func.func @library
//  CHECK-NEXT:   %[[NARROW:.*]] = stablehlo.convert %arg0 : (tensor<4x4xcomplex<f64>>) -> tensor<4x4xcomplex<f32>>
//  CHECK-NEXT:   %[[DONE:.*]] = stablehlo.custom_call @lapack_cpotrf_ffi(%[[NARROW]])
//  CHECK-NEXT:   stablehlo.convert %[[DONE]] : (tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f64>>
func.func @library(%a: tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>> {
  %0 = stablehlo.custom_call @lapack_cpotrf_ffi(%a) : (tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
  return %0 : tensor<4x4xcomplex<f32>>
}

// A sum over microbatches is ours, and becomes wide.
// CHECK-LABEL: func.func @accumulated
//  CHECK-NEXT:   stablehlo.custom_call @shardc.accumulate(%arg0) {shardc.kind = "sum"} : (tensor<4xf64>) -> tensor<4xf64>
func.func @accumulated(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @shardc.accumulate(%a) {shardc.kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
