// RUN: shardc-opt %s --split-input-file --passes=shardc-split-backward | filecheck %s
// RUN: shardc-opt %s --split-input-file --passes=shardc-split-backward,shardc-split-backward | filecheck %s

// What the stage before waits for comes first; the gradient of the weight reads what that has made, under an
// id of its own, and adds to the accumulator. The first stage sends nothing back: all of it can wait.
// CHECK-LABEL: func.func @stage0_weight
//  CHECK-SAME:   {shardc.per_microbatch, shardc.value = "v0"}
//   CHECK-NOT: @stage0_backward
// CHECK-LABEL: func.func @stage1_backward
//  CHECK-SAME:   %[[W:arg[0-9]+]]: tensor<4x4xf32> {shardc.value = "arg0"}
//  CHECK-SAME:   -> (tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"}, tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v3"})
//  CHECK-SAME:   shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64
//       CHECK:   %[[G:.*]] = stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [0]
//       CHECK:   %[[BACK:.*]] = stablehlo.dot_general %[[G]], %[[W]], contracting_dims = [1] x [1]
//       CHECK:   return %[[BACK]], %[[G]]
// CHECK-LABEL: func.func @stage1_weight
//  CHECK-SAME:   %[[ACC:arg[0-9]+]]: tensor<4x4xf32> {shardc.value = "acc1"}
//  CHECK-SAME:   %[[G:arg[0-9]+]]: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v3"}
//  CHECK-SAME:   -> (tensor<4x4xf32> {shardc.value = "acc1"})
//  CHECK-SAME:   shardc.kind = "weight", shardc.round = 0 : i64, shardc.stage = 1 : i64
//       CHECK:   %[[DW:.*]] = stablehlo.dot_general %{{.*}}, %[[G]], contracting_dims = [0] x [0]
//       CHECK:   stablehlo.add %[[ACC]], %[[DW]]
func.func @stage0_backward(%x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v0"},
    %g: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"},
    %acc: tensor<4x4xf32> {shardc.value = "acc0"})
    -> (tensor<4x4xf32> {shardc.value = "acc0"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %sum = stablehlo.add %acc, %dw : tensor<4x4xf32>
  return %sum : tensor<4x4xf32>
}
func.func @stage1_backward(%w: tensor<4x4xf32> {shardc.value = "arg0"},
    %x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v1"},
    %acc: tensor<4x4xf32> {shardc.value = "acc1"})
    -> (tensor<4x4xf32> {shardc.value = "acc1"}, tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
  %g = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %sum = stablehlo.add %acc, %dw : tensor<4x4xf32>
  %back = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %sum, %back : tensor<4x4xf32>, tensor<8x4xf32>
}

// -----

// What is cheap to make from what the gradient of the weight reads anyway is made twice, and not handed over.
// CHECK-LABEL: func.func @stage1_backward
//  CHECK-SAME:   -> (tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
// CHECK-LABEL: func.func @stage1_weight
//  CHECK-SAME:   (%[[X:arg[0-9]+]]: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v1"}, %{{.*}}: tensor<4x4xf32> {shardc.value = "acc1"})
//       CHECK:   %[[G:.*]] = stablehlo.negate %[[X]]
//       CHECK:   stablehlo.dot_general %[[X]], %[[G]]
func.func @stage0_backward(%g: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"},
    %acc: tensor<8x4xf32> {shardc.value = "acc0"}) -> (tensor<8x4xf32> {shardc.value = "acc0"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %sum = stablehlo.add %acc, %g : tensor<8x4xf32>
  return %sum : tensor<8x4xf32>
}
func.func @stage1_backward(%w: tensor<4x4xf32> {shardc.value = "arg0"},
    %x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v1"},
    %acc: tensor<4x4xf32> {shardc.value = "acc1"})
    -> (tensor<4x4xf32> {shardc.value = "acc1"}, tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
  %g = stablehlo.negate %x : tensor<8x4xf32>
  %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %sum = stablehlo.add %acc, %dw : tensor<4x4xf32>
  %back = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %sum, %back : tensor<4x4xf32>, tensor<8x4xf32>
}

// -----

// A stage without weights: all of its products are awaited, and none of them would have to wait.
// CHECK-LABEL: func.func @stage0_weight
// CHECK-LABEL: func.func @stage1_backward
//       CHECK:   stablehlo.dot_general
//   CHECK-NOT:   @stage1_weight
func.func @stage0_backward(%x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v0"},
    %g: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"},
    %acc: tensor<4x4xf32> {shardc.value = "acc0"})
    -> (tensor<4x4xf32> {shardc.value = "acc0"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %sum = stablehlo.add %acc, %dw : tensor<4x4xf32>
  return %sum : tensor<4x4xf32>
}
func.func @stage1_backward(%w: tensor<4x4xf32> {shardc.value = "arg0"},
    %x: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v1"})
    -> (tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
  %back = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %back : tensor<8x4xf32>
}
