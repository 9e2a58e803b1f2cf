// RUN: not shardc-opt %s --passes=shardc-keep-forward-values{prices=1} 2>&1 | filecheck %s --check-prefix=PRICES
// PRICES:      error[SHARDC-200]: there are 1 prices, but 2 stages
// PRICES-NEXT: help: give one price for each stage, 0 for one that does as the program says

// RUN: not shardc-opt %s --passes=shardc-keep-forward-values{values=12.tanh1} 2>&1 | filecheck %s --check-prefix=FORM
// FORM:      error[SHARDC-200]: '12.tanh1' is not a value of a stage
// FORM-NEXT: help: write `stage:value`, such as 0:12.tanh1

// RUN: not shardc-opt %s --passes=shardc-keep-forward-values{values=1:12.tanh1} 2>&1 | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN:      error[SHARDC-200]: stage 1 is to keep the value 12.tanh1, which its backward pass does not compute again
// UNKNOWN-NEXT: help: this plan was made for another program: plan again

// Its own maximum is compared with what is computed again: to keep the maximum alone would tear them.
// RUN: not shardc-opt %s --passes=shardc-keep-forward-values{values=0:1} 2>&1 | filecheck %s --check-prefix=TORN
// TORN:      error[SHARDC-200]: of what the backward pass of stage 0 compares, some values are to be kept and others are not: 1
// TORN-NEXT: help: keep all values that it compares, or none
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 2 : i64} {
  func.func public @main(%x: tensor<8x8xf32> {shardc.batch_dim = 0 : i64}) -> tensor<8x8xf32> {
    %low = stablehlo.constant {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} dense<0xFF800000> : tensor<f32>
    %y = stablehlo.tanh %x {shardc.direction = "forward", shardc.origin = array<i64: 0, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8x8xf32>
    %m = stablehlo.reduce(%y init: %low) applies stablehlo.maximum across dimensions = [1] {shardc.direction = "forward", shardc.origin = array<i64: 1, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
    %z = stablehlo.broadcast_in_dim %m, dims = [0] {shardc.direction = "forward", shardc.origin = array<i64: 2, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8xf32>) -> tensor<8x8xf32>
    %b:2 = "stablehlo.optimization_barrier"(%x, %z) {shardc.direction = "backward", shardc.origin = array<i64: 3, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
    %again = stablehlo.tanh %b#0 {shardc.direction = "backward", shardc.origin = array<i64: 4, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8x8xf32>
    %most = stablehlo.reduce(%again init: %low) applies stablehlo.maximum across dimensions = [1] {shardc.direction = "backward", shardc.origin = array<i64: 5, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
    %spread = stablehlo.broadcast_in_dim %most, dims = [0] {shardc.direction = "backward", shardc.origin = array<i64: 6, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8xf32>) -> tensor<8x8xf32>
    %is = stablehlo.compare EQ, %again, %spread {shardc.direction = "backward", shardc.origin = array<i64: 7, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xi1>
    %g = stablehlo.select %is, %b#1, %again {shardc.direction = "backward", shardc.origin = array<i64: 8, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8x8xi1>, tensor<8x8xf32>
    return %g : tensor<8x8xf32>
  }
}
