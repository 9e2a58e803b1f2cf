// RUN: shardc-opt %s --passes=shardc-split-microbatches{count=4} --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes="shardc-split-microbatches{count=4 keep-price=0.001 cluster=h100-8}" --split-input-file | filecheck %s --check-prefix=KEEP

// The batch argument is read one microbatch at a time; the gradient is added up over the
// microbatches, right behind the product that makes it; the update runs after them.
// CHECK: module attributes {shardc.num_microbatches = 4 : i64}
// CHECK-LABEL: func.func public @gradient_is_accumulated_and_applied_after
//  CHECK-SAME:   %arg0: tensor<3x5xf32> {shardc.state_result = 0 : i64, tf.aliasing_output = 0 : i32}
//  CHECK-SAME:   %arg1: tensor<4x2x3xf32> {shardc.batch_dim = 0 : i64}
//       CHECK:   %[[I:.*]] = stablehlo.custom_call @shardc.microbatch_index() {shardc.phase = "body"}
//       CHECK:   %[[ONE:.*]] = stablehlo.dynamic_slice %arg1, %[[I]], {{.*}} -> tensor<1x2x3xf32>
//       CHECK:   %[[X:.*]] = stablehlo.reshape %[[ONE]] {{.*}} -> tensor<2x3xf32>
//       CHECK:   %[[Y:.*]] = stablehlo.dot_general %[[X]], %arg0, {{.*}} -> tensor<2x5xf32>
//       CHECK:   %[[G:.*]] = stablehlo.dot_general %[[Y]], %[[X]], {{.*}} -> tensor<5x3xf32>
//       CHECK:   %[[SUM:.*]] = stablehlo.custom_call @shardc.accumulate(%[[G]])
//  CHECK-SAME:     {shardc.kind = "sum", shardc.phase = "body"}
//       CHECK:   stablehlo.transpose %[[SUM]], {{.*}}shardc.phase = "after"
//       CHECK:   stablehlo.subtract %arg0, {{.*}}shardc.phase = "after"
module {
  func.func public @gradient_is_accumulated_and_applied_after(
      %w: tensor<3x5xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8x3xf32>) -> tensor<3x5xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32>
    %g = stablehlo.dot_general %y, %x, contracting_dims = [0] x [0]
        : (tensor<8x5xf32>, tensor<8x3xf32>) -> tensor<5x3xf32>
    %t = stablehlo.transpose %g, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
    %new = stablehlo.subtract %w, %t : tensor<3x5xf32>
    return %new : tensor<3x5xf32>
  }
}

// -----

// A sum over a mask is needed inside the microbatches, and light: it is computed before them.
// CHECK-LABEL: func.func public @light_sum_comes_before
//       CHECK:   %[[MASK:.*]] = stablehlo.reshape %arg2 {shardc.phase = "before"}
//       CHECK:   %[[N:.*]] = stablehlo.reduce(%[[MASK]] init: {{.*}}shardc.phase = "before"
//       CHECK:   stablehlo.broadcast_in_dim %[[N]], {{.*}}shardc.phase = "body"
//       CHECK:   stablehlo.dot_general {{.*}}shardc.phase = "body"
//       CHECK:   stablehlo.custom_call @shardc.accumulate
module {
  func.func public @light_sum_comes_before(
      %w: tensor<8x3xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<16x8xf32>,
      %mask: tensor<16xf32>) -> tensor<8x3xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %n = stablehlo.reduce(%mask init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<16xf32>, tensor<f32>) -> tensor<f32>
    %all = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<16x8xf32>
    %scaled = stablehlo.divide %x, %all : tensor<16x8xf32>
    %y = stablehlo.dot_general %scaled, %w, contracting_dims = [1] x [0]
        : (tensor<16x8xf32>, tensor<8x3xf32>) -> tensor<16x3xf32>
    %g = stablehlo.dot_general %scaled, %y, contracting_dims = [0] x [0]
        : (tensor<16x8xf32>, tensor<16x3xf32>) -> tensor<8x3xf32>
    return %g : tensor<8x3xf32>
  }
}

// -----

// A result with a batch dim is put together again.
// CHECK-LABEL: func.func public @per_example_result
//       CHECK:   %[[Y:.*]] = stablehlo.dot_general {{.*}} -> tensor<2x5xf32>
//       CHECK:   %[[ALL:.*]] = stablehlo.custom_call @shardc.accumulate(%[[Y]])
//  CHECK-SAME:     {shardc.batch_dim = 0 : i64, shardc.kind = "concat", shardc.phase = "body"}
//  CHECK-SAME:     -> tensor<4x2x5xf32>
//       CHECK:   stablehlo.reshape %[[ALL]] {shardc.phase = "after"} {{.*}} -> tensor<8x5xf32>
module {
  func.func public @per_example_result(%w: tensor<3x5xf32>, %x: tensor<8x3xf32>)
      -> tensor<8x5xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32>
    return %y : tensor<8x5xf32>
  }
}

// -----

// A call works on a part of the batch: it runs a function of that size. What it sums up over its
// rows is accumulated.
// CHECK-LABEL: func.func public @main
//       CHECK:   %[[OUT:.*]]:2 = call @layer_part{{[0-9]+}}(%{{.*}}, %arg0)
//  CHECK-SAME:   shardc.factor_sizes = array<i64: 1, 3>
//  CHECK-SAME:   (tensor<1x3xf32>, tensor<3x3xf32>) -> (tensor<1x3xf32>, tensor<3x3xf32>)
//       CHECK:   stablehlo.custom_call @shardc.accumulate(%[[OUT]]#1) {shardc.kind = "sum"
//       CHECK: func.func private @layer_part{{[0-9]+}}(%arg0: tensor<1x3xf32>, %arg1: tensor<3x3xf32>)
//       CHECK:   stablehlo.dot_general {{.*}} (tensor<1x3xf32>, tensor<3x3xf32>) -> tensor<1x3xf32>
func.func public @main(%w: tensor<3x3xf32>, %x: tensor<4x3xf32>) -> tensor<3x3xf32> {
  %0:2 = func.call @layer(%x, %w) {shardc.cost = array<i64: 0, 0, 0, 144, 0>, shardc.factor_sizes = array<i64: 4, 3>, shardc.factors = [array<i64: 0, -1>, array<i64: -1, -1>, array<i64: 0, -1>, array<i64: -1, -1>], shardc.summed = [array<i64>, array<i64: 0>]} : (tensor<4x3xf32>, tensor<3x3xf32>) -> (tensor<4x3xf32>, tensor<3x3xf32>)
  %1 = stablehlo.subtract %w, %0#1 : tensor<3x3xf32>
  return %1 : tensor<3x3xf32>
}
func.func private @layer(%x: tensor<4x3xf32>, %w: tensor<3x3xf32>) -> (tensor<4x3xf32>, tensor<3x3xf32>) attributes {shardc.cost = array<i64: 0, 0, 0, 144, 0>, shardc.factor_sizes = array<i64: 4, 3>, shardc.factors = [array<i64: 0, -1>, array<i64: -1, -1>, array<i64: 0, -1>, array<i64: -1, -1>], shardc.summed = [array<i64>, array<i64: 0>]} {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {shardc.called_factors = [array<i64: 0, -1>]} : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [0] x [0] {shardc.called_factors = [array<i64: -1, -1>]} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<3x3xf32>
}

// -----

// A sum over what a product makes of the batch is needed by the next product: the microbatches are
// run through twice, the first time in a loop that adds up this sum alone.
// CHECK:       module attributes {{.*}}shardc.sweeps = "the microbatches are run through twice
// CHECK-LABEL: func.func public @heavy_sum_takes_a_run_of_its_own
//       CHECK:   %[[FIRST:.*]]:2 = stablehlo.while(%[[T:.*]] = %{{.*}}, %[[SO_FAR:.*]] = %{{.*}})
//  CHECK-SAME:     tensor<i32>, tensor<3xf32> attributes {shardc.phase = "before"}
//       CHECK:     stablehlo.compare LT, %[[T]]
//       CHECK:     stablehlo.dynamic_slice %arg1, %[[T]], {{.*}} -> tensor<1x2x3xf32>
//       CHECK:     stablehlo.dot_general {{.*}} -> tensor<2x3xf32>
//       CHECK:     %[[SUM:.*]] = stablehlo.reduce
//       CHECK:     %[[MORE:.*]] = stablehlo.add %[[SO_FAR]], %[[SUM]]
//       CHECK:     stablehlo.return %{{.*}}, %[[MORE]]
//       CHECK:   stablehlo.dot_general {{.*}}shardc.phase = "body"
//       CHECK:   stablehlo.broadcast_in_dim %[[FIRST]]#1
//       CHECK:   stablehlo.dot_general {{.*}}shardc.phase = "body"
//       CHECK:   stablehlo.custom_call @shardc.accumulate
//
// If values may be kept, the loop also writes the products of each microbatch, and the body reads
// them instead of multiplying again.
// KEEP:        module attributes {{.*}}shardc.kept_between
// KEEP-LABEL:  func.func public @heavy_sum_takes_a_run_of_its_own
//       KEEP:   %[[FIRST:.*]]:3 = stablehlo.while(%[[T:.*]] = %{{.*}}, %[[ALL:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
//       KEEP:     %[[Y:.*]] = stablehlo.dot_general {{.*}} -> tensor<2x3xf32>
//       KEEP:     %[[ROW:.*]] = stablehlo.reshape %[[Y]] : (tensor<2x3xf32>) -> tensor<1x2x3xf32>
//       KEEP:     stablehlo.dynamic_update_slice %[[ALL]], %[[ROW]], %[[T]], {{.*}} -> tensor<4x2x3xf32>
//   KEEP-NOT:   stablehlo.dot_general {{.*}} -> tensor<2x3xf32>
//       KEEP:   %[[PARTS:.*]] = stablehlo.reshape %[[FIRST]]#1 {shardc.phase = "body"}
//   KEEP-NOT:   stablehlo.dot_general {{.*}} -> tensor<2x3xf32>
//       KEEP:   stablehlo.dynamic_slice %[[PARTS]], {{.*}} -> tensor<1x1x2x3xf32>
//       KEEP:   stablehlo.dot_general {{.*}}shardc.phase = "body"
//       KEEP:   stablehlo.custom_call @shardc.accumulate
module {
  func.func public @heavy_sum_takes_a_run_of_its_own(
      %w: tensor<3x3xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8x3xf32>) -> tensor<3x3xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %all = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %centred = stablehlo.subtract %y, %all : tensor<8x3xf32>
    %g = stablehlo.dot_general %centred, %x, contracting_dims = [0] x [0]
        : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    return %g : tensor<3x3xf32>
  }
}
