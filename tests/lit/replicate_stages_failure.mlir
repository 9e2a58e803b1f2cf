// RUN: not shardc-opt %s --passes=shardc-replicate-stages 2>&1 | filecheck %s
// CHECK:      error[SHARDC-164]: two copies of each stage share the microbatches, and there is only one
// CHECK-NEXT: help: ask for more microbatches, or take a schedule with one copy of each stage

// One microbatch goes through one of the copies.
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {
  func.func @stage0_forward(%x: tensor<4xf32> {shardc.value = "arg0"})
      -> (tensor<4xf32> {shardc.per_microbatch, shardc.value = "v0"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.negate %x : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
