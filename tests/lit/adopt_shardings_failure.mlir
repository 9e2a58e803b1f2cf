// RUN: shardc-opt %s --passes=shardc-adopt-shardings --split-input-file --verify-diagnostics
// RUN: not shardc-opt %s --passes=shardc-adopt-shardings --split-input-file 2>&1 | filecheck %s
// CHECK:      error[SHARDC-203]: argument 'argument 0' of shape (6,) is to be split over x in dim 0, and 6 does not divide into 4 parts
// CHECK-NEXT: --> {{.*}}adopt_shardings_failure.mlir:9
// CHECK-NEXT: help: shard another dim, or make its size a multiple of 4

sdy.mesh @mesh = <["x"=4]>
// expected-error@+1 {{SHARDC-203}}
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<6xf32> {
  return %a : tensor<6xf32>
}

// -----

sdy.mesh @mesh = <["x"=4]>
func.func @uneven_inside(%a: tensor<6xf32>) -> tensor<6xf32> {
  // expected-error@+1 {{SHARDC-203}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

sdy.mesh @one = <["x"=4]>
sdy.mesh @other = <["x"=2, "y"=2]>
func.func @two_meshes(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = sdy.sharding_constraint %a <@one, [{"x"}]> : tensor<4xf32>
  // expected-error@+1 {{SHARDC-204}}
  %1 = sdy.sharding_constraint %0 <@other, [{"x"}]> : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

sdy.mesh @mesh = <["x"=4]>
func.func @part_of_an_axis(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{SHARDC-202}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"x":(1)2}]> : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

sdy.mesh @mesh = <["x"=4]>
func.func @by_hand(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{SHARDC-202}}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%b: tensor<1xf32>) {
    sdy.return %b : tensor<1xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
