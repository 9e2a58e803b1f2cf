// RUN: shardc-opt %s --passes=shardc-strip-shardings --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-strip-shardings,shardc-strip-shardings --split-input-file | filecheck %s

// What JAX writes around random keys, custom calls and arguments of a program for one device.
//   CHECK-NOT: sdy
// CHECK-LABEL: func.func @one_device(%arg0: tensor<2xui32>) -> tensor<2xui32>
//  CHECK-NEXT:   %[[TOUCHED:.*]] = stablehlo.custom_call @touch(%arg0) : (tensor<2xui32>)
//  CHECK-NEXT:   return %[[TOUCHED]]
sdy.mesh @empty_mesh = <[]>
sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]>
sdy.mesh @one = <["x"=1]>
func.func @one_device(%key: tensor<2xui32> {sdy.sharding = #sdy.sharding<@one, [{"x"}]>})
    -> (tensor<2xui32> {sdy.sharding = #sdy.sharding<@one, [{}]>}) {
  %0 = sdy.sharding_constraint %key <@empty_mesh, [{}]> : tensor<2xui32>
  %1 = stablehlo.custom_call @touch(%0) {sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_0, []>]>} : (tensor<2xui32>) -> tensor<2xui32>
  return %1 : tensor<2xui32>
}

// -----

// What the user asked for on a real mesh stays; a constraint that is open in every dim goes.
//       CHECK: sdy.mesh @mesh
// CHECK-LABEL: func.func @asked_for
//       CHECK:   %[[KEPT:.*]] = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {?}]>
//  CHECK-NEXT:   %[[WHOLE:.*]] = sdy.sharding_constraint %[[KEPT]] <@mesh, [{}, {}]>
//  CHECK-NEXT:   return %[[WHOLE]]
sdy.mesh @mesh = <["x"=2]>
func.func @asked_for(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}, {?}]> : tensor<4x4xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{?}, {?}]> : tensor<4x4xf32>
  %2 = sdy.sharding_constraint %1 <@mesh, [{}, {}]> : tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// The same in the older form of annotations.
// CHECK-LABEL: func.func @gspmd(%arg0: tensor<4xf32>)
//  CHECK-NEXT:   return %arg0
func.func @gspmd(%a: tensor<4xf32> {mhlo.sharding = "{replicated}"}) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
