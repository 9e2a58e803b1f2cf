// RUN: shardc-opt %s --passes=shardc-lower-collectives | filecheck %s

sdy.mesh @mesh = <["x"=2, "y"=2]>
sdy.mesh @stage1 = <["z"=4]>

// What was split becomes whole: one gather, over both axes where both split the dim.
// CHECK-LABEL: func.func @gather
//       CHECK:   sdy.all_gather [{"x", "y"}, {}] %arg0 out_sharding=<@mesh, [{}, {}]>
//   CHECK-NOT:   sdy.reshard
func.func @gather(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = sdy.reshard %a <@mesh, [{}, {}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// A partial sum becomes whole, or parts: the latter moves half the bytes.
// CHECK-LABEL: func.func @reduce
//       CHECK:   sdy.all_reduce {"x"} %arg0 out_sharding=<@mesh, [{}, {}]>
//       CHECK:   sdy.reduce_scatter [{}, {"x"}] %arg0 out_sharding=<@mesh, [{}, {"x"}]>
func.func @reduce(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = sdy.reshard %a <@mesh, [{}, {}]> : tensor<8x8xf32>
  %1 = sdy.reshard %a <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// An axis that moves from one dim to another is an all-to-all; what is whole is sliced for free.
// CHECK-LABEL: func.func @move_and_slice
//       CHECK:   sdy.all_to_all [{"x"}: 0->1] %arg0 out_sharding=<@mesh, [{}, {"x"}]>
//       CHECK:   sdy.all_slice [{}, {"y"}] %arg0 out_sharding=<@mesh, [{"x"}, {"y"}]>
func.func @move_and_slice(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = sdy.reshard %a <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
  %1 = sdy.reshard %a <@mesh, [{"x"}, {"y"}]> : tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// A reshard of a reshard starts from where the first one ends.
// CHECK-LABEL: func.func @twice
//       CHECK:   %[[PART:.*]] = sdy.all_slice [{"z"}] %arg0 out_sharding=<@stage1, [{"z"}]>
//       CHECK:   sdy.all_gather [{"z"}] %[[PART]] out_sharding=<@stage1, [{}]>
func.func @twice(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = sdy.reshard %a <@stage1, [{"z"}]> : tensor<8xf32>
  %1 = sdy.reshard %0 <@stage1, [{}]> : tensor<8xf32>
  return %1 : tensor<8xf32>
}
