// RUN: shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=2,y=2/x=2}" | filecheck %s
// RUN: shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=2@6,7/x=2@0,1}" | filecheck %s --check-prefix=PLACED

// Without device ids the stages take the devices in order.
// CHECK: module attributes {shardc.mesh_devices = {stage0 = array<i64: 0, 1, 2, 3>, stage1 = array<i64: 4, 5>}
// CHECK: sdy.mesh @stage0 = <["x"=2, "y"=2]>
// CHECK: sdy.mesh @stage1 = <["x"=2]>

// PLACED: stage0 = array<i64: 6, 7>, stage1 = array<i64: 0, 1>
// PLACED: sdy.mesh @stage0 = <["x"=2]>
module attributes {shardc.num_stages = 2 : i64} {
  func.func @stage0_forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
