// RUN: not shardc-opt %s --passes=shardc-lower-collectives 2>&1 | filecheck %s

// CHECK:      error[SHARDC-210]: a value of shape (6,) cannot go from [-] to [z] on a mesh of {'z': 4}
// CHECK-NEXT: --> {{.*}}lower_collectives_failure.mlir:9
// CHECK-NEXT: help: only axes that divide a dim can split it

sdy.mesh @mesh = <["z"=4]>
func.func @main(%a: tensor<6xf32>) -> tensor<6xf32> {
  %0 = sdy.reshard %a <@mesh, [{"z"}]> : tensor<6xf32>
  return %0 : tensor<6xf32>
}
