// RUN: not shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{stages=4}" 2>&1 | filecheck %s --check-prefix=MANY
// MANY:      error[SHARDC-160]: 4 stages were asked for, but the forward pass has 3 layers (matrix products and convolutions)
// MANY:      help: ask for at most 3 stages

// RUN: not shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=9;6}" 2>&1 | filecheck %s --check-prefix=CUTS
// CUTS:      error[SHARDC-162]: the cuts [9, 6] are not rising positions of the {{[0-9]+}} ops of @main
// CUTS-NEXT: help: give for each stage but the first the position of its first forward op

// RUN: not shardc-opt %s "--passes=shardc-plan-stages{stages=2}" 2>&1 | filecheck %s --check-prefix=LOSS
// LOSS:      error[SHARDC-161]: 2 stages were asked for, but no result tells where the forward pass ends
// LOSS-NEXT: help: return the loss from the step, or use stages=1

// A step that returns its state and nothing else, from a file without locations.
module attributes {shardc.num_microbatches = 1 : i64} {
  func.func public @main(%w: tensor<4x4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<1x2x4xf32> {shardc.batch_dim = 0 : i64}) -> tensor<4x4xf32> {
    %xb = stablehlo.reshape %x {shardc.phase = "body"} : (tensor<1x2x4xf32>) -> tensor<2x4xf32>
    %y = stablehlo.dot_general %xb, %w, contracting_dims = [1] x [0] {shardc.phase = "body"} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %dw = stablehlo.dot_general %xb, %y, contracting_dims = [0] x [0] {shardc.phase = "body"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
    %g = stablehlo.custom_call @shardc.accumulate(%dw) {shardc.kind = "sum", shardc.phase = "body"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %new = stablehlo.subtract %w, %g {shardc.phase = "after"} : tensor<4x4xf32>
    return %new : tensor<4x4xf32>
  }
}
