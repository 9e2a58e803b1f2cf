// RUN: shardc-opt %s --passes=shardc-split-backward-loops | filecheck %s
// RUN: shardc-opt %s --passes=shardc-split-backward-loops,shardc-split-backward-loops | filecheck %s
// RUN: shardc-opt %s --passes=shardc-split-backward-loops,shardc-split-backward | filecheck %s --check-prefix=CUT

// Of the first stage nobody waits for anything: its loop stays.
// CHECK-LABEL: func.func @stage0_backward
//       CHECK:   stablehlo.while
//   CHECK-NOT:   stablehlo.while

// The first loop makes the gradient that goes back through the layers, and stacks it up; the second reads
// the stack and makes the gradients of the weights.
// CHECK-LABEL: func.func @stage1_backward
//       CHECK:   %[[FIRST:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[DH:.*]] = %{{.*}}, %[[STACK:.*]] = %{{.*}}) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
//       CHECK:     stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [1]
//   CHECK-NOT:     stablehlo.dot_general
//       CHECK:     stablehlo.dynamic_update_slice %[[STACK]]
//       CHECK:   stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>, tensor<3x4x4xf32>
//       CHECK:     stablehlo.dynamic_slice %[[FIRST]]#2
//       CHECK:     stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [0] x [0]
//   CHECK-NOT:     stablehlo.dot_general

// Then each of the two parts of the backward gets one of them.
// CUT-LABEL: func.func @stage1_backward
//       CUT:   contracting_dims = [1] x [1]
//   CUT-NOT:   contracting_dims
// CUT-LABEL: func.func @stage1_weight
//       CUT:   contracting_dims = [0] x [0]
//   CUT-NOT:   contracting_dims
func.func @stage0_backward(%w: tensor<3x4x4xf32> {shardc.value = "arg0"},
    %x: tensor<3x8x4xf32> {shardc.per_microbatch, shardc.value = "v0"},
    %g: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"},
    %acc: tensor<3x4x4xf32> {shardc.value = "acc0"}) -> (tensor<3x4x4xf32> {shardc.value = "acc0"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x4x4xf32>
  %0:3 = stablehlo.while(%i = %zero, %dh = %g, %dw = %zeros) : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.dot_general %dh, %2, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %6 = stablehlo.dot_general %4, %dh, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.reshape %6 : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
    %8 = stablehlo.dynamic_update_slice %dw, %7, %i, %zero, %zero : (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
    %9 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %9, %5, %8 : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  }
  %sum = stablehlo.add %acc, %0#2 : tensor<3x4x4xf32>
  return %sum : tensor<3x4x4xf32>
}

func.func @stage1_backward(%w: tensor<3x4x4xf32> {shardc.value = "arg1"},
    %x: tensor<3x8x4xf32> {shardc.per_microbatch, shardc.value = "v1"},
    %g: tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v3"},
    %acc: tensor<3x4x4xf32> {shardc.value = "acc1"})
    -> (tensor<3x4x4xf32> {shardc.value = "acc1"}, tensor<8x4xf32> {shardc.per_microbatch, shardc.value = "v2"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 1 : i64} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x4x4xf32>
  %0:3 = stablehlo.while(%i = %zero, %dh = %g, %dw = %zeros) : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.dot_general %dh, %2, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %6 = stablehlo.dot_general %4, %dh, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %7 = stablehlo.reshape %6 : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
    %8 = stablehlo.dynamic_update_slice %dw, %7, %i, %zero, %zero : (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
    %9 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %9, %5, %8 : tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>
  }
  %sum = stablehlo.add %acc, %0#2 : tensor<3x4x4xf32>
  return %sum, %0#1 : tensor<3x4x4xf32>, tensor<8x4xf32>
}
