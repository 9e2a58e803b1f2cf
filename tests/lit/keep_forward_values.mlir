// RUN: shardc-opt %s --passes=shardc-keep-forward-values{prices=0.1} | filecheck %s
// RUN: shardc-opt %s --passes=shardc-keep-forward-values | filecheck %s --check-prefix=USER
// RUN: shardc-opt %S/inputs/checkpointed_layers.mlir "--passes=shardc-find-batch,shardc-cut-loops{at=2},shardc-split-microbatches{count=2},shardc-plan-stages{stages=2},shardc-keep-forward-values{prices=0.01;0}" --verify-each | filecheck %s --check-prefix=LAYERS
// RUN: shardc-opt %S/inputs/checkpointed_layers.mlir "--passes=shardc-find-batch,shardc-cut-loops{at=2},shardc-split-microbatches{count=2},shardc-plan-stages{stages=2},shardc-keep-forward-values{values=1:7.tanh1},shardc-outline-stages" --verify-each | filecheck %s --check-prefix=GIVEN

// The product of the forward pass is used instead of the one behind the barrier.
// CHECK-LABEL: func.func public @behind_a_barrier
//       CHECK:   %[[Y:.*]] = stablehlo.dot_general %arg0, %arg1
//       CHECK:   stablehlo.tanh %[[Y]] {{.*}}"forward"
//   CHECK-NOT:   stablehlo.dot_general
//       CHECK:   stablehlo.multiply %[[Y]], %{{.*}}"backward"

// USER-LABEL: func.func public @behind_a_barrier
//       USER:   %[[X:.*]]:2 = stablehlo.optimization_barrier {{.*}}%arg0
//       USER:   %[[AGAIN:.*]] = stablehlo.dot_general %[[X]]#0
//       USER:   stablehlo.multiply %[[AGAIN]]

module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {
  func.func public @behind_a_barrier(%x: tensor<512x512xf32> {shardc.batch_dim = 0 : i64}, %w: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {shardc.direction = "forward", shardc.origin = array<i64: 0, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    %z = stablehlo.tanh %y {shardc.direction = "forward", shardc.origin = array<i64: 1, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : tensor<512x512xf32>
    %b:2 = "stablehlo.optimization_barrier"(%x, %z) {shardc.direction = "backward", shardc.origin = array<i64: 2, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>)
    %again = stablehlo.dot_general %b#0, %w, contracting_dims = [1] x [0] {shardc.direction = "backward", shardc.origin = array<i64: 3, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    %g = stablehlo.multiply %again, %b#1 {shardc.direction = "backward", shardc.origin = array<i64: 4, 0>, shardc.phase = "body", shardc.stage = 0 : i64} : tensor<512x512xf32>
    return %z, %g : tensor<512x512xf32>, tensor<512x512xf32>
  }
}

// The first stage keeps the hyperbolic tangents of its layers: its forward loop writes them to a
// stack, its backward loop reads them, from the last row on. The other does as the program says.
//      LAYERS:   shardc.kept = [
// LAYERS-SAME:   [{num_bytes = {{.*}} : i64, op = "stablehlo.tanh", residency = "keep", seconds = {{.*}} : f64, value = "7.tanh1", where = {{[^{]*}}}],
// LAYERS-SAME:   residency = "recompute"{{.*}} value = "7.tanh1"
//      LAYERS:   %[[ZERO:.*]] = stablehlo.constant {shardc.direction = "forward"{{.*}} dense<0.000000e+00> : tensor<2x8x8xf32>
//      LAYERS:   %[[FORWARD:.*]]:4 = stablehlo.while({{.*}} = %[[ZERO]])
//      LAYERS:   %[[Y:.*]] = stablehlo.tanh
//      LAYERS:   %[[ROW:.*]] = stablehlo.reshape %[[Y]]
//      LAYERS:   stablehlo.dynamic_update_slice %{{.*}}, %[[ROW]], %iterArg,
//      LAYERS:   stablehlo.while{{.*}}"forward"{{.*}}shardc.stage = 1
//      LAYERS:   stablehlo.while{{.*}}"backward"{{.*}}shardc.stage = 1
//      LAYERS:   stablehlo.tanh
//      LAYERS:   stablehlo.while{{.*}}"backward"{{.*}}shardc.stage = 0
//      LAYERS:   %[[READ:.*]] = stablehlo.dynamic_slice %[[FORWARD]]#3,
//      LAYERS:   %[[KEPT:.*]] = stablehlo.reshape %[[READ]]
//  LAYERS-NOT:   stablehlo.tanh

// A plan names the values that a stage keeps.
// GIVEN-LABEL: func.func @stage0_backward
//       GIVEN:   stablehlo.tanh
// GIVEN-LABEL: func.func @stage1_backward
//   GIVEN-NOT:   stablehlo.tanh
//       GIVEN:   return
