// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=6}" | filecheck %s
// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{stages=1}" | filecheck %s --check-prefix=ONE

// Parameters live where they are first used, optimizer scalars on the first stage.
//       CHECK: module attributes {{.*}}shardc.num_stages = 2
// CHECK-LABEL: func.func public @main
//  CHECK-SAME:   shardc.name = "w", shardc.stage = 0
//  CHECK-SAME:   shardc.name = "w2", shardc.stage = 1
//  CHECK-SAME:   shardc.name = "count", shardc.stage = 0

// The microbatch is read again by the backward pass of the stage instead of being kept.
//       CHECK:   @shardc.microbatch_index() {shardc.direction = "forward", {{.*}}shardc.stage = 0
//       CHECK:   @shardc.microbatch_index() {shardc.direction = "backward", {{.*}}shardc.stage = 0

// The forward pass is cut in front of the second matrix product.
//       CHECK:   dot_general {{.*}}shardc.direction = "forward", {{.*}}shardc.stage = 0
//       CHECK:   tanh {{.*}}shardc.stage = 0
//       CHECK:   dot_general {{.*}}shardc.direction = "forward", {{.*}}shardc.stage = 1
//       CHECK:   dot_general {{.*}}shardc.direction = "forward", {{.*}}shardc.stage = 1

// Each stage accumulates its own part of the tied gradient; the owner adds them once per step.
//       CHECK:   %[[B:.*]] = stablehlo.dot_general {{.*}}shardc.direction = "backward", {{.*}}shardc.stage = 1
//       CHECK:   %[[A:.*]] = stablehlo.dot_general {{.*}}shardc.direction = "backward", {{.*}}shardc.stage = 0
//   CHECK-DAG:   %[[SB:.*]] = stablehlo.custom_call @shardc.accumulate(%[[B]]) {{.*}}shardc.stage = 1
//   CHECK-DAG:   %[[SA:.*]] = stablehlo.custom_call @shardc.accumulate(%[[A]]) {{.*}}shardc.stage = 0
//       CHECK:   stablehlo.add %[[SB]], %[[SA]] {shardc.phase = "after", shardc.stage = 0

// One stage: nothing is split, the add stays in the body.
//         ONE: shardc.num_stages = 1
//         ONE: stablehlo.add {{.*}}shardc.direction = "backward"
//     ONE-NOT: shardc.stage = 1
