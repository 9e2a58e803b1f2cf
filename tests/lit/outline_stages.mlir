// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=6},shardc-outline-stages" | filecheck %s

// The arguments and results of @main are kept in the module; @main itself is gone.
//   CHECK-NOT: @main
//       CHECK: shardc.arguments = [{donated = true, name = "w", result = 0 : i64, stage = 0
//  CHECK-SAME: {batch_dim = 0 : i64, donated = false, name = "x", stage = 0
//  CHECK-SAME: shardc.result_stages = [0, 1, 0, 1]

// The forward function takes the microbatch's index and gives the activation that crosses.
// CHECK-LABEL: func.func @stage0_forward
//  CHECK-SAME:   shardc.value = "index"
//  CHECK-SAME:   -> (tensor<4x8xf32> {shardc.per_microbatch, shardc.value = "[[H:v[0-9]+]]"})
//  CHECK-SAME:   shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0

// The backward function adds to an accumulator that it takes and gives.
// CHECK-LABEL: func.func @stage0_backward
//  CHECK-SAME:   %[[ACC:arg[0-9]+]]: tensor<8x8xf32> {shardc.value = "[[ID:acc[0-9]+]]"}
//  CHECK-SAME:   -> (tensor<8x8xf32> {shardc.value = "[[ID]]"})
//       CHECK:   %[[SUM:.*]] = stablehlo.add %[[ACC]],
//  CHECK-NEXT:   return %[[SUM]]

// The owner of the tied parameter waits for the other stage's part; a constant is not sent.
// CHECK-LABEL: func.func @stage0_update_1
//       CHECK:   stablehlo.constant
//       CHECK:   stablehlo.reduce
// CHECK-LABEL: func.func @stage0_update_3
//       CHECK:   stablehlo.subtract

// CHECK-LABEL: func.func @stage1_forward
//  CHECK-SAME:   {shardc.per_microbatch, shardc.value = "[[H]]"}
// CHECK-LABEL: func.func @stage1_backward
// CHECK-LABEL: func.func @stage1_update_0
// The global norm is put together on the last stage.
// CHECK-LABEL: func.func @stage1_update_2
//       CHECK:   stablehlo.sqrt
//   CHECK-NOT: @main

// RUN: shardc-opt %s --passes=shardc-outline-stages | filecheck %s --check-prefix=FLAT
// With one microbatch nothing is accumulated: what the forward pass gives is the value itself.
// FLAT-LABEL: func.func @stage0_forward
//  FLAT-SAME:   (%arg0: tensor<4xf32> {shardc.value = "arg0"}) -> (tensor<4xf32> {shardc.value = "v0"})
//  FLAT-NEXT:   %[[Y:.*]] = stablehlo.tanh %arg0
//  FLAT-NEXT:   return %[[Y]]
//   FLAT-NOT: shardc.accumulate
// FLAT-LABEL: func.func @stage0_update_0
//  FLAT-SAME:   {shardc.value = "v0"}
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.tanh %x {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<4xf32>
    %a = stablehlo.custom_call @shardc.accumulate(%y) {shardc.direction = "forward", shardc.kind = "sum", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %z = stablehlo.negate %a {shardc.phase = "after", shardc.stage = 0 : i64} : tensor<4xf32>
    return %z : tensor<4xf32>
  }
}
