// RUN: not shardc-opt %s --passes=shardc-find-batch{batch-args=3} 2>&1 | filecheck %s
// CHECK:      error[SHARDC-141]: there is no argument 3: the step has 1 (flattened) arguments
// CHECK-NEXT: help: count the leaves of all arguments, from 0
module {
  func.func public @one_argument(%x: tensor<8x3xf32>) -> tensor<8x3xf32> {
    %y = stablehlo.tanh %x : tensor<8x3xf32>
    return %y : tensor<8x3xf32>
  }
}
