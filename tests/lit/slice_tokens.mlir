// RUN: shardc-opt %s --passes=shardc-slice-tokens{slices=2} | filecheck %s
// RUN: shardc-opt %s --passes=shardc-slice-tokens{slices=2},shardc-slice-tokens{slices=2} | filecheck %s

// One head of causal attention over 8 tokens. The first slice sees its own 5 keys, 25 pairs; 3 queries of the second
// see all 8, which are 24.
// A product of zero and what a slice leaves out is zero if that is finite: each slice counts in its rows what is not, the
// first stage's update says whether there was any, and this is the last result of the step.
//       CHECK: module attributes {
//  CHECK-SAME:   shardc.assumed = {{.*}}'stablehlo.tanh' at {{.*}}slice_tokens.mlir:{{[0-9]+}} has a number that is nan or above 1e+09 in magnitude"]]
//  CHECK-SAME:   shardc.num_slices = 2 : i64
//  CHECK-SAME:   shardc.result_stages = [0], shardc.result_types = [tensor<1xi1>], shardc.results = ["[[FLAG:v[0-9]+]]"]
// CHECK-LABEL: func.func @stage0_forward_0
//  CHECK-SAME:   %[[SO_FAR:arg[0-9]+]]: tensor<1xf32> {shardc.value = "[[COUNT:acc[0-9]+]]"}
//  CHECK-SAME:   -> (tensor<5x2xf32> {shardc.per_microbatch, shardc.value = "[[X0:v[0-9]+]]"}, tensor<1xf32> {shardc.value = "[[COUNT]]"})
//       CHECK:   slice %arg0 [0:5, 0:2]
//       CHECK:   abs %{{.*}} : tensor<5x2xf32>
//       CHECK:   compare LE
//       CHECK:   reduce({{.*}}) applies stablehlo.add across dimensions = [0, 1]
//       CHECK:   add %[[SO_FAR]]
// CHECK-LABEL: func.func @stage0_forward_1
//       CHECK:   slice %arg0 [5:8, 0:2]
// CHECK-LABEL: func.func @stage1_forward_0
//  CHECK-SAME:   (%[[X:arg[0-9]+]]: tensor<5x2xf32> {shardc.per_microbatch, shardc.value = "[[X0]]"}
//       CHECK:   dot_general {{.*}} -> tensor<5x5xf32>

// The second has 3 queries and all 8 keys, those of the first slice before its own.
// CHECK-LABEL: func.func @stage1_forward_1
//       CHECK:   %[[ALL:.*]] = stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 0 : (tensor<5x2xf32>, tensor<3x2xf32>) -> tensor<8x2xf32>
//       CHECK:   dot_general %{{.*}}, %[[ALL]], {{.*}} -> tensor<3x8xf32>

// It runs backward first: of the gradients of 8 keys its own are done, the others go on.
// CHECK-LABEL: func.func @stage1_backward_0
//  CHECK-SAME:   %[[REST:arg[0-9]+]]: tensor<5x2xf32> {shardc.per_microbatch, shardc.value = "[[ID:v[0-9]+]]"}
//       CHECK:   stablehlo.add %{{.*}}, %[[REST]] : tensor<5x2xf32>
// CHECK-LABEL: func.func @stage1_backward_1
//  CHECK-SAME:   -> (tensor<5x2xf32> {shardc.per_microbatch, shardc.value = "[[ID]]"}
//       CHECK:   %[[SUM:.*]] = stablehlo.dot_general {{.*}} -> tensor<8x2xf32>
//       CHECK:   stablehlo.slice %[[SUM]] [0:5, 0:2]
//       CHECK:   stablehlo.slice %[[SUM]] [5:8, 0:2]
// CHECK-LABEL: func.func @stage0_update_0
//  CHECK-SAME:   (%[[COUNTED:arg[0-9]+]]: tensor<1xf32> {shardc.value = "[[COUNT]]"}) -> (tensor<1xi1> {shardc.value = "[[FLAG]]"})
//       CHECK:   compare GT, %[[COUNTED]]
module attributes {shardc.num_microbatches = 2 : i64, shardc.num_stages = 2 : i64, shardc.results = [],
    shardc.result_types = [], shardc.result_stages = [], shardc.arguments = [{name = "x"}]} {
  func.func @stage0_forward(%x: tensor<8x2xf32> {shardc.value = "arg0"})
      -> (tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v0"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %x : tensor<8x2xf32>
    return %y : tensor<8x2xf32>
  }
  func.func @stage1_forward(%x: tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v0"},
      %acc: tensor<f32> {shardc.value = "acc0"})
      -> (tensor<8x8xf32> {shardc.per_microbatch, shardc.value = "v1"}, tensor<f32> {shardc.value = "acc0"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
    %scores = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x8xf32>
    %query = stablehlo.iota dim = 0 : tensor<8x8xi32>
    %key = stablehlo.iota dim = 1 : tensor<8x8xi32>
    %seen = stablehlo.compare GE, %query, %key, SIGNED : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
    %hidden = stablehlo.constant dense<0xFF800000> : tensor<8x8xf32>
    %masked = stablehlo.select %seen, %scores, %hidden : tensor<8x8xi1>, tensor<8x8xf32>
    %weights = stablehlo.exponential %masked : tensor<8x8xf32>
    %mixed = stablehlo.dot_general %weights, %x, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x2xf32>) -> tensor<8x2xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %loss = stablehlo.reduce(%mixed init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x2xf32>, tensor<f32>) -> tensor<f32>
    %total = stablehlo.add %acc, %loss : tensor<f32>
    return %weights, %total : tensor<8x8xf32>, tensor<f32>
  }
  func.func @stage1_backward(%weights: tensor<8x8xf32> {shardc.per_microbatch, shardc.value = "v1"})
      -> (tensor<8x2xf32> {shardc.per_microbatch, shardc.value = "v2"})
      attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
    %one = stablehlo.constant dense<1.0> : tensor<8x2xf32>
    %back = stablehlo.dot_general %weights, %one, contracting_dims = [0] x [0] : (tensor<8x8xf32>, tensor<8x2xf32>) -> tensor<8x2xf32>
    return %back : tensor<8x2xf32>
  }
}
