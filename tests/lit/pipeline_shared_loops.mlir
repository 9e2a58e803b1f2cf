// RUN: shardc-opt %s --passes=shardc-split-microbatches{count=2} | filecheck %s
// RUN: shardc-opt %s --passes=shardc-split-microbatches{count=4} | filecheck %s --check-prefix=ONE

// A loop that accumulates over four blocks of the batch: with two microbatches each runs two of the
// iterations on its own blocks, and their sums are added up.
// CHECK-LABEL: func.func public @accumulate
//       CHECK:   %[[I:.*]] = stablehlo.custom_call @shardc.microbatch_index()
//       CHECK:   %[[X:.*]] = stablehlo.reshape {{.*}} -> tensor<2x2x3xf32>
//       CHECK:   %[[LOOP:.*]]:2 = stablehlo.while(%[[K:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
//       CHECK:     %[[TWO:.*]] = stablehlo.constant dense<2>
//  CHECK-NEXT:     stablehlo.compare LT, %[[K]], %[[TWO]]
//       CHECK:     %[[BEFORE:.*]] = stablehlo.multiply %[[I]]
//  CHECK-NEXT:     %[[TRUE:.*]] = stablehlo.add %[[K]], %[[BEFORE]]
//       CHECK:     %[[OWN:.*]] = stablehlo.subtract %[[TRUE]]
//  CHECK-NEXT:     stablehlo.dynamic_slice %[[X]], %[[OWN]]
//       CHECK:   stablehlo.custom_call @shardc.accumulate(%[[LOOP]]#1) {shardc.kind = "sum"

// With four of them no loop is left, and the products can be cut into stages.
// ONE-LABEL: func.func public @accumulate
//   ONE-NOT:   stablehlo.while
//       ONE:   %[[Y:.*]] = stablehlo.dot_general {{.*}} {shardc.phase = "body"}
//       ONE:   %[[G:.*]] = stablehlo.dot_general %{{.*}}, %[[Y]], {{.*}} {shardc.phase = "body"}
//       ONE:   %[[NEXT:.*]] = stablehlo.add %{{.*}}, %[[G]]
//       ONE:   stablehlo.custom_call @shardc.accumulate(%[[NEXT]])
module {
  func.func public @accumulate(%w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32},
                               %x: tensor<4x2x3xf32>) -> (tensor<3x3xf32>, tensor<f32>) {
    %from = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %four = stablehlo.constant dense<4> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<3x3xf32>
    %0:2 = stablehlo.while(%i = %from, %sum = %zero) : tensor<i32>, tensor<3x3xf32>
    cond {
      %go = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %row = stablehlo.dynamic_slice %x, %i, %from, %from, sizes = [1, 2, 3]
          : (tensor<4x2x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x3xf32>
      %part = stablehlo.reshape %row : (tensor<1x2x3xf32>) -> tensor<2x3xf32>
      %y = stablehlo.dot_general %part, %w, contracting_dims = [1] x [0]
          : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
      %g = stablehlo.dot_general %part, %y, contracting_dims = [0] x [0]
          : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>
      %next = stablehlo.add %sum, %g : tensor<3x3xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %next : tensor<i32>, tensor<3x3xf32>
    }
    %init = stablehlo.constant dense<0.0> : tensor<f32>
    %norm = stablehlo.reduce(%0#1 init: %init) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<3x3xf32>, tensor<f32>) -> tensor<f32>
    return %0#1, %norm : tensor<3x3xf32>, tensor<f32>
  }
}
