// RUN: shardc-opt %s --passes=shardc-annotate-for-xla | filecheck %s

sdy.mesh @stage0 = <["x"=2, "y"=2]>

// XLA decides itself where to reshard and to reduce: wanted operand shardings, partial sums and
// reductions inside an op go; where the results lie stays.
// CHECK-LABEL: func.func @stage0_forward
//  CHECK-SAME:   %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>
//  CHECK-SAME:   -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>
//   CHECK-NOT:   unreduced
//   CHECK-NOT:   shardc.in_shardings
//   CHECK-NOT:   shardc.reduce_axes
//       CHECK:   stablehlo.reduce
//  CHECK-SAME:   sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>
func.func @stage0_forward(
    %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>, shardc.value = "arg0"})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}], unreduced={"y"}>, shardc.value = "v0"})
    attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %cst = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@stage0, []>]>, shardc.in_shardings = []} dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] {
    sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}], unreduced={"y"}>]>,
    shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}, {"y"}]>, #sdy.sharding<@stage0, []>]
  } : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// A loop has no sharding of its own for XLA, which may take values out of it; the ops inside have.
// CHECK-LABEL: func.func @stage0_backward
//       CHECK:   stablehlo.while
//   CHECK-NOT:   attributes
//       CHECK:     stablehlo.negate %{{.*}} {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>}
func.func @stage0_backward(
    %arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>, shardc.value = "v0"},
    %arg1: tensor<i1> {sdy.sharding = #sdy.sharding<@stage0, []>, shardc.value = "arg1"})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>, shardc.value = "v1"})
    attributes {shardc.kind = "backward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %0 = stablehlo.while(%v = %arg0) : tensor<8xf32> attributes {
      shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}]>],
      sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>}
  cond {
    stablehlo.return %arg1 : tensor<i1>
  } do {
    %1 = stablehlo.negate %v {
      shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}]>],
      sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>} : tensor<8xf32>
    stablehlo.return %1 : tensor<8xf32>
  }
  return %0 : tensor<8xf32>
}

// XLA takes no sharding on an approximate top-k: a constraint behind it says where it lies.
// CHECK-LABEL: func.func @stage0_update
//       CHECK:   %[[TOP:.*]]:2 = stablehlo.custom_call @ApproxTopK
//   CHECK-NOT:   sdy.sharding =
//       CHECK:   sdy.sharding_constraint %[[TOP]]#0 <@stage0, [{"x"}, {}]>
//       CHECK:   sdy.sharding_constraint %[[TOP]]#1 <@stage0, [{"x"}, {}]>
func.func private @larger(tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<i1>
func.func @stage0_update(
    %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>},
    %arg1: tensor<8x16xi32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>},
    %arg2: tensor<f32> {sdy.sharding = #sdy.sharding<@stage0, []>},
    %arg3: tensor<i32> {sdy.sharding = #sdy.sharding<@stage0, []>})
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>},
        tensor<8x4xi32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>})
    attributes {shardc.kind = "update", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %0:2 = stablehlo.custom_call @ApproxTopK(%arg0, %arg1, %arg2, %arg3) {
      called_computations = [@larger],
      sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>, <@stage0, [{"x"}, {}]>]>
  } : (tensor<8x16xf32>, tensor<8x16xi32>, tensor<f32>, tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xi32>)
  return %0#0, %0#1 : tensor<8x4xf32>, tensor<8x4xi32>
}

// What XLA would split further than planned takes its operands as planned; the largest of floats is
// found among integers, in whose collectives nan is not lost.
// CHECK-LABEL: func.func @stage1_forward
//       CHECK:   %[[ROWS:.*]] = sdy.sharding_constraint %arg0 <@stage0, [{"x"}, {}]>
//       CHECK:   stablehlo.reduce(%[[ROWS]] init: %{{.*}}) applies stablehlo.xor
//       CHECK:   stablehlo.reduce(%{{.*}}) applies stablehlo.maximum across dimensions = [0]
//  CHECK-SAME:     (tensor<8x4xi32>, tensor<i32>) -> tensor<4xi32>
//       CHECK:   stablehlo.bitcast_convert %{{.*}} : (tensor<4xi32>) -> tensor<4xf32>
func.func @stage1_forward(
    %arg0: tensor<8x4xi8> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {"y"}]>},
    %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>})
    -> (tensor<8xi8> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>},
        tensor<4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{}]>})
    attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %c = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@stage0, []>]>, shardc.in_shardings = []} dense<0> : tensor<i8>
  %cst = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@stage0, []>]>, shardc.in_shardings = []} dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.xor across dimensions = [1] {
    sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>,
    shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}, {}]>, #sdy.sharding<@stage0, []>]
  } : (tensor<8x4xi8>, tensor<i8>) -> tensor<8xi8>
  %1 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.maximum across dimensions = [0] {
    sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{}]>]>, shardc.reduce_axes = ["x"],
    shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}, {}]>, #sdy.sharding<@stage0, []>]
  } : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<8xi8>, tensor<4xf32>
}

// Positions are counted in integers: bf16 rounds where the second device's part begins, 200, and
// what is added to it.
// CHECK-LABEL: func.func @stage0_positions
//       CHECK:   %[[COUNTED:.*]] = stablehlo.iota dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>} : tensor<400xi32>
//       CHECK:   stablehlo.convert %[[COUNTED]] {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>} : (tensor<400xi32>) -> tensor<400xbf16>
//       CHECK:   stablehlo.iota dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>} : tensor<400xi8>
func.func @stage0_positions()
    -> (tensor<400xbf16> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>},
        tensor<400xi8> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>})
    attributes {shardc.kind = "update", shardc.round = 1 : i64, shardc.stage = 0 : i64} {
  %0 = stablehlo.iota dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>, shardc.in_shardings = []} : tensor<400xbf16>
  %1 = stablehlo.iota dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>, shardc.in_shardings = []} : tensor<400xi8>
  return %0, %1 : tensor<400xbf16>, tensor<400xi8>
}
