// RUN: shardc-opt %s --passes=shardc-replicate-stages | filecheck %s
// RUN: shardc-opt %s --passes=shardc-replicate-stages,shardc-replicate-stages | filecheck %s

// The update of stage 0 reads the sum, and so runs after that of the copy, stage 1, has handed over its own.
//       CHECK: module attributes {
//  CHECK-SAME:   shardc.num_replicas = 2 : i64, shardc.num_stages = 2 : i64
// CHECK-LABEL: func.func @stage0_backward
//  CHECK-SAME:   {shardc.value = "acc0"}
//  CHECK-SAME:   -> (tensor<4xf32> {shardc.value = "acc0"}, tensor<4xf32> {shardc.per_microbatch, shardc.value = "v1"})
// CHECK-LABEL: func.func @stage0_update_1
//  CHECK-SAME:   (%[[OWN:arg[0-9]+]]: tensor<4xf32> {shardc.value = "acc0"}, %[[W:arg[0-9]+]]: tensor<4xf32> {shardc.value = "arg0"}, %[[OTHER:arg[0-9]+]]: tensor<4xf32> {shardc.value = "v4"})
//  CHECK-SAME:   shardc.round = 1 : i64, shardc.stage = 0 : i64
//       CHECK:   %[[SUM:.*]] = stablehlo.add %[[OWN]], %[[OTHER]]
//       CHECK:   stablehlo.subtract %[[W]], %[[SUM]]
// The copy adds to an accumulator of its own; what a microbatch makes keeps its id.
// CHECK-LABEL: func.func @stage1_backward
//  CHECK-SAME:   {shardc.value = "acc3"}
//  CHECK-SAME:   -> (tensor<4xf32> {shardc.value = "acc3"}, tensor<4xf32> {shardc.per_microbatch, shardc.value = "v1"})
//  CHECK-SAME:   shardc.round = 0 : i64, shardc.stage = 1 : i64
// CHECK-LABEL: func.func @stage1_update_0
//  CHECK-SAME:   (%[[ACC:arg[0-9]+]]: tensor<4xf32> {shardc.value = "acc3"}) -> (tensor<4xf32> {shardc.value = "v4"})
//       CHECK:   %[[WHOLE:.*]] = stablehlo.reshape %[[ACC]]
//       CHECK:   return %[[WHOLE]]
//   CHECK-NOT: func.func
module attributes {shardc.num_microbatches = 4 : i64, shardc.num_stages = 1 : i64, shardc.results = ["v2"]} {
  func.func @stage0_backward(%g: tensor<4xf32> {shardc.per_microbatch, shardc.value = "v0"},
      %acc: tensor<4xf32> {shardc.value = "acc0"})
      -> (tensor<4xf32> {shardc.value = "acc0"}, tensor<4xf32> {shardc.per_microbatch, shardc.value = "v1"})
      attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %sum = stablehlo.add %acc, %g : tensor<4xf32>
    %back = stablehlo.negate %g : tensor<4xf32>
    return %sum, %back : tensor<4xf32>, tensor<4xf32>
  }
  func.func @stage0_update_0(%acc: tensor<4xf32> {shardc.value = "acc0"}, %w: tensor<4xf32> {shardc.value = "arg0"})
      -> (tensor<4xf32> {shardc.value = "v2"})
      attributes {shardc.kind = "update", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %new = stablehlo.subtract %w, %acc : tensor<4xf32>
    return %new : tensor<4xf32>
  }
}
