// RUN: shardc-opt %s --passes=shardc-adopt-shardings --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-adopt-shardings,shardc-adopt-shardings --split-input-file | filecheck %s

// Meshes of the same axes are one, whatever the order of their devices; axes of size 1 go.
//       CHECK: sdy.mesh @user = <["data"=2, "model"=4]>
//   CHECK-NOT: sdy.mesh
// CHECK-LABEL: func.func @main
//  CHECK-SAME:   %arg0: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@user, [{"data"}, {}]>}
//       CHECK:   sdy.sharding_constraint %arg0 <@user, [{"data"}, {?}]>
sdy.mesh @mesh = <["data"=2, "one"=1, "model"=4]>
sdy.mesh @mesh_0 = <["data"=2, "model"=4], device_ids=[0,2,4,6,1,3,5,7]>
func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "one"}, {}]>}) -> tensor<4x4xf32> {
  %0 = sdy.sharding_constraint %a <@mesh_0, [{"data"}, {?}]> : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// A sharding on an op is a constraint behind it.
// CHECK-LABEL: func.func @main
//       CHECK:   %[[OP:.*]] = stablehlo.negate %arg0 : tensor<4x4xf32>
//       CHECK:   %[[HELD:.*]] = sdy.sharding_constraint %[[OP]] <@user, [{}, {"x"}]>
//       CHECK:   return %[[HELD]]
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>} : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// An argument that is returned may lie otherwise as a result.
// CHECK-LABEL: func.func @main
//  CHECK-SAME:   sdy.sharding = #sdy.sharding<@user, [{"x"}]>
//       CHECK:   %[[MOVED:.*]] = sdy.sharding_constraint %arg0 <@user, [{}]>
//       CHECK:   return %[[MOVED]]
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  return %a : tensor<4xf32>
}

// -----

// A mesh that nothing refers to goes.
//   CHECK-NOT: sdy.mesh
// CHECK-LABEL: func.func @nothing_is_asked
sdy.mesh @mesh = <["x"=2]>
func.func @nothing_is_asked(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
