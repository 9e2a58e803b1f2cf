// RUN: shardc-opt %s --passes=shardc-plan-residency{in-flight=1} | filecheck %s --check-prefix=SEGMENTS
// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=6},shardc-plan-residency{in-flight=2;0}" | filecheck %s
// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=6},shardc-plan-residency{in-flight=0;2},shardc-outline-stages" | filecheck %s --check-prefix=AGAIN
// RUN: shardc-opt %S/inputs/tied_step.mlir "--passes=shardc-plan-stages{cuts=6},shardc-outline-stages" | filecheck %s --check-prefix=KEPT

// Forward ops of the first stage are marked, those of the second are not, nor is what goes back.
// CHECK-LABEL: func.func public @main
//       CHECK:   stablehlo.tanh {{.*}}"forward", {{.*}}shardc.recomputed, shardc.stage = 0
//   CHECK-NOT:   shardc.recomputed

// The second stage makes both of its products again out of what it was sent, and keeps neither.
// AGAIN-LABEL: func.func @stage1_forward
//   AGAIN-NOT:   shardc.per_microbatch{{.*}} -> ({{.*}}shardc.per_microbatch
//       AGAIN:   return
// AGAIN-LABEL: func.func @stage1_backward
//       AGAIN:   %[[SENT:arg[0-9]+]]: tensor<4x8xf32> {shardc.per_microbatch, shardc.value = "v0"}
//   AGAIN-NOT:   shardc.per_microbatch, shardc.value = "v1"
//       AGAIN:   %[[FIRST:.*]] = stablehlo.dot_general %[[SENT]]
//       AGAIN:   %[[SECOND:.*]] = stablehlo.dot_general %[[FIRST]]
//       AGAIN:   stablehlo.add %[[SECOND]], %[[SECOND]]

// KEPT-LABEL: func.func @stage1_backward
//       KEPT:   %[[SECOND:arg[0-9]+]]: tensor<4x8xf32> {shardc.per_microbatch
//       KEPT:   stablehlo.add

// What crosses between the two segments is one number: it is kept, and all else is made again.
// SEGMENTS-LABEL: func.func public @main
//       SEGMENTS:   tanh %arg0 {{.*}}"body", shardc.recomputed
//  SEGMENTS-NEXT:   slice {{.*}}"body", shardc.stage
//  SEGMENTS-NEXT:   broadcast_in_dim {{.*}}"body", shardc.recomputed
//  SEGMENTS-NEXT:   tanh {{.*}}"body", shardc.recomputed
//  SEGMENTS-NEXT:   multiply {{.*}}"body", shardc.stage
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %a = stablehlo.tanh %x {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    %n = stablehlo.slice %a [0:1] {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8xf32>) -> tensor<1xf32>
    %b = stablehlo.broadcast_in_dim %n, dims = [0] {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<1xf32>) -> tensor<8xf32>
    %c = stablehlo.tanh %b {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    %d = stablehlo.multiply %a, %c {shardc.direction = "backward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    return %d : tensor<8xf32>
  }
}
