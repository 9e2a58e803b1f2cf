// RUN: not shardc-opt %s --passes=shardc-plan-residency{in-flight=2} 2>&1 | filecheck %s
// CHECK:      error[SHARDC-200]: in-flight has 1 numbers, but there are 2 stages
// CHECK-NEXT: help: give one number for each stage, 0 for one that keeps all

module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 2 : i64} {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}
