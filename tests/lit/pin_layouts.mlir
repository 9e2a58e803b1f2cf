// RUN: shardc-opt %s --passes=shardc-pin-layouts | filecheck %s
// RUN: shardc-opt %s --passes=shardc-pin-layouts,shardc-pin-layouts | filecheck %s

// An FFT takes and gives row-major values, in loops too; whoever uses its result uses the pinned one.
// CHECK-LABEL: func.func @fft
//  CHECK-NEXT:   %[[IN:.*]] = stablehlo.custom_call @LayoutConstraint(%arg0)
//  CHECK-SAME:     operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]
//  CHECK-NEXT:   %[[FFT:.*]] = stablehlo.fft %[[IN]]
//  CHECK-NEXT:   %[[OUT:.*]] = stablehlo.custom_call @LayoutConstraint(%[[FFT]])
//  CHECK-NEXT:   %[[REAL:.*]] = stablehlo.real %[[OUT]]
//  CHECK-NEXT:   return %[[REAL]]
func.func @fft(%a: tensor<4x8xf32>) -> tensor<4x5xf32> {
  %0 = stablehlo.fft %a, type = RFFT, length = [8] : (tensor<4x8xf32>) -> tensor<4x5xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<4x5xcomplex<f32>>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}
