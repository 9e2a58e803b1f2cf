// RUN: shardc-opt %s --passes=shardc-accumulate-in-loops | filecheck %s
// RUN: shardc-opt %s --passes=shardc-accumulate-in-loops,shardc-accumulate-in-loops | filecheck %s

// The loop writes all rows of a stack, in another type than they are accumulated in, and sums up
// what all iterations share. It carries both accumulators and adds to what is there.
// CHECK-LABEL: func.func @stage0_backward
//       CHECK:   %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[STACK:.*]] = %arg0, %[[SUM:.*]] = %arg1) : tensor<i32>, tensor<3x4xf32>, tensor<4xf32>
//       CHECK:     %[[ROW:.*]] = stablehlo.reshape %{{.*}} : (tensor<4xbf16>) -> tensor<1x4xbf16>
//       CHECK:     %[[WIDE:.*]] = stablehlo.convert %[[ROW]] : (tensor<1x4xbf16>) -> tensor<1x4xf32>
//       CHECK:     %[[OLD:.*]] = stablehlo.dynamic_slice %[[STACK]], %[[I]], %{{.*}}, sizes = [1, 4] : (tensor<3x4xf32>
//       CHECK:     %[[NEW:.*]] = stablehlo.add %[[OLD]], %[[WIDE]] : tensor<1x4xf32>
//       CHECK:     stablehlo.dynamic_update_slice %[[STACK]], %[[NEW]], %[[I]], %{{.*}} : (tensor<3x4xf32>
//       CHECK:     stablehlo.add %[[SUM]], %{{.*}} : tensor<4xf32>
//       CHECK:     stablehlo.return
//   CHECK-NOT:   stablehlo.add
//       CHECK:   return %[[LOOP]]#1, %[[LOOP]]#2
func.func @stage0_backward(
    %acc: tensor<3x4xf32> {shardc.value = "acc0"}, %sum: tensor<4xf32> {shardc.value = "acc1"},
    %w: tensor<3x4xf32> {shardc.value = "arg0"})
    -> (tensor<3x4xf32> {shardc.value = "acc0"}, tensor<4xf32> {shardc.value = "acc1"}) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %stack = stablehlo.constant dense<0.0> : tensor<3x4xbf16>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %zero, %c = %stack, %s = %zeros)
    : tensor<i32>, tensor<3x4xbf16>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, sizes = [1, 4]
      : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4xf32>) -> tensor<4xf32>
    %3 = stablehlo.convert %2 : (tensor<4xf32>) -> tensor<4xbf16>
    %4 = stablehlo.reshape %3 : (tensor<4xbf16>) -> tensor<1x4xbf16>
    %5 = stablehlo.dynamic_update_slice %c, %4, %i, %zero
      : (tensor<3x4xbf16>, tensor<1x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<3x4xbf16>
    %6 = stablehlo.add %s, %2 : tensor<4xf32>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %5, %6 : tensor<i32>, tensor<3x4xbf16>, tensor<4xf32>
  }
  %1 = stablehlo.convert %0#1 : (tensor<3x4xbf16>) -> tensor<3x4xf32>
  %2 = stablehlo.add %acc, %1 : tensor<3x4xf32>
  %3 = stablehlo.add %sum, %0#2 : tensor<4xf32>
  return %2, %3 : tensor<3x4xf32>, tensor<4xf32>
}

// The stack of this microbatch is used beside the sum, what is summed up is narrower than the
// accumulator, and only half of each row is written: all three stay.
// CHECK-LABEL: func.func @stage1_backward
//       CHECK:   stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[ZEROS:c.*]], %{{.*}} = %{{c.*}}, %{{.*}} = %[[ZEROS]])
//       CHECK:   stablehlo.add %arg0,
//       CHECK:   stablehlo.add %arg1,
//       CHECK:   stablehlo.add %arg2,
func.func @stage1_backward(
    %acc: tensor<3x4xf32> {shardc.value = "acc0"}, %sum: tensor<4xf32> {shardc.value = "acc1"},
    %half: tensor<3x4xf32> {shardc.value = "acc2"}, %w: tensor<3x4xf32> {shardc.value = "arg0"})
    -> (tensor<3x4xf32> {shardc.value = "acc0"}, tensor<4xf32> {shardc.value = "acc1"},
        tensor<3x4xf32> {shardc.value = "acc2"}, tensor<3x4xf32> {shardc.value = "v0"}) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %stack = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xbf16>
  %0:4 = stablehlo.while(%i = %zero, %c = %stack, %s = %zeros, %h = %stack)
    : tensor<i32>, tensor<3x4xf32>, tensor<4xbf16>, tensor<3x4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, sizes = [1, 4]
      : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4xf32>) -> tensor<4xf32>
    %3 = stablehlo.convert %2 : (tensor<4xf32>) -> tensor<4xbf16>
    %4 = stablehlo.dynamic_update_slice %c, %1, %i, %zero
      : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %5 = stablehlo.add %s, %3 : tensor<4xbf16>
    %6 = stablehlo.slice %1 [0:1, 0:2] : (tensor<1x4xf32>) -> tensor<1x2xf32>
    %7 = stablehlo.dynamic_update_slice %h, %6, %i, %zero
      : (tensor<3x4xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %8 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %8, %4, %5, %7 : tensor<i32>, tensor<3x4xf32>, tensor<4xbf16>, tensor<3x4xf32>
  }
  %1 = stablehlo.convert %0#2 : (tensor<4xbf16>) -> tensor<4xf32>
  %2 = stablehlo.add %acc, %0#1 : tensor<3x4xf32>
  %3 = stablehlo.add %sum, %1 : tensor<4xf32>
  %4 = stablehlo.add %half, %0#3 : tensor<3x4xf32>
  return %2, %3, %4, %0#1 : tensor<3x4xf32>, tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}
