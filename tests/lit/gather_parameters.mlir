// RUN: shardc-opt %s '--passes=shardc-gather-parameters{axis=data parts=2}' | filecheck %s
// RUN: shardc-opt %s '--passes=shardc-gather-parameters{axis=data parts=2},shardc-gather-parameters{axis=data parts=2}' | filecheck %s
// RUN: shardc-opt %s '--passes=shardc-gather-parameters{axis=data parts=1}' | filecheck %s --check-prefix=WHOLE

// The weight and the sum of its gradients go through functions of their own. The scalar, which no axis divides, and
// the batch stay as they are; so does the stack of losses, which is no sum.
// CHECK-LABEL: func.func @stage0_gather
//  CHECK-SAME:   (%[[W:arg[0-9]+]]: tensor<4xf32> {shardc.value = "arg0"}) -> (tensor<4xf32> {shardc.value = "v3"})
//  CHECK-SAME:   shardc.gathered = "data", shardc.kind = "gather"
//       CHECK:   return %[[W]]
// CHECK-LABEL: func.func @stage0_backward
//  CHECK-SAME:   {shardc.value = "v3"}, %arg1: tensor<f32> {shardc.value = "arg1"}, %arg2: tensor<2x4xf32> {shardc.value = "arg2"}
//  CHECK-SAME:   tensor<4xf32> {shardc.value = "acc0"}, %arg4: tensor<2xf32> {shardc.value = "acc1"}
//  CHECK-SAME:   -> (tensor<4xf32> {shardc.value = "acc0"}, tensor<2xf32> {shardc.value = "acc1"})
// CHECK-LABEL: func.func @stage0_reduce
//  CHECK-SAME:   (%[[SUM:arg[0-9]+]]: tensor<4xf32> {shardc.value = "acc0"}, %[[TOTAL:arg[0-9]+]]: tensor<4xf32> {shardc.value = "acc4"})
//  CHECK-SAME:   -> (tensor<4xf32> {shardc.value = "acc4"})
//  CHECK-SAME:   shardc.gathered = "data", shardc.kind = "reduce"
//       CHECK:   %[[NEW:.*]] = stablehlo.add %[[TOTAL]], %[[SUM]]
//       CHECK:   return %[[NEW]]
// CHECK-LABEL: func.func @stage0_update_0
//  CHECK-SAME:   {shardc.value = "acc4"}, %{{.*}} {shardc.value = "arg0"}
//   CHECK-NOT: func.func
// One device along the axis has everything anyway.
//   WHOLE-NOT: gather
module attributes {shardc.num_microbatches = 2 : i64, shardc.num_stages = 1 : i64, shardc.results = ["v2"],
    shardc.arguments = [
      {name = "w", type = tensor<4xf32>, stage = 0 : i64, donated = false},
      {name = "scale", type = tensor<f32>, stage = 0 : i64, donated = false},
      {name = "x", type = tensor<2x4xf32>, stage = 0 : i64, donated = false, batch_dim = 0 : i64}]} {
  func.func @stage0_backward(%w: tensor<4xf32> {shardc.value = "arg0"}, %scale: tensor<f32> {shardc.value = "arg1"},
      %x: tensor<2x4xf32> {shardc.value = "arg2"}, %acc: tensor<4xf32> {shardc.value = "acc0"},
      %rows: tensor<2xf32> {shardc.value = "acc1"}, %i: tensor<i32> {shardc.value = "index"})
      -> (tensor<4xf32> {shardc.value = "acc0"}, tensor<2xf32> {shardc.value = "acc1"})
      attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %sum = stablehlo.add %acc, %w : tensor<4xf32>
    %row = stablehlo.reshape %scale : (tensor<f32>) -> tensor<1xf32>
    %new = stablehlo.dynamic_update_slice %rows, %row, %i : (tensor<2xf32>, tensor<1xf32>, tensor<i32>) -> tensor<2xf32>
    return %sum, %new : tensor<4xf32>, tensor<2xf32>
  }
  func.func @stage0_update_0(%acc: tensor<4xf32> {shardc.value = "acc0"}, %w: tensor<4xf32> {shardc.value = "arg0"})
      -> (tensor<4xf32> {shardc.value = "v2"})
      attributes {shardc.kind = "update", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %new = stablehlo.subtract %w, %acc : tensor<4xf32>
    return %new : tensor<4xf32>
  }
}
