// RUN: not shardc-opt %s --passes=shardc-outline-stages 2>&1 | filecheck %s
// CHECK:      error[SHARDC-200]: 'stablehlo.tanh' has no stage
// CHECK-NEXT: --> {{.*}}outline_stages_failure.mlir:7
// CHECK-NEXT: help: run shardc-plan-stages first

func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.tanh %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
