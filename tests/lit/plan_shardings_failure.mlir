// RUN: not shardc-opt %s --passes=shardc-plan-shardings 2>&1 | filecheck %s --check-prefix=MESH
// MESH:      error[SHARDC-101]: stage 0 has no mesh
// MESH-NEXT: help: run shardc-assign-meshes first

// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=4},shardc-plan-shardings{memory-limit=100}" 2>&1 | filecheck %s --check-prefix=MEMORY
// MEMORY:      error[SHARDC-220]: stage 0, on devices {{[0-9,-]+}}: no choice of shardings fits into 100 bytes per device
// MEMORY-NEXT: help: raise the memory limit, use more devices or stages, or use more microbatches

// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=4},shardc-plan-shardings{cluster=nowhere}" 2>&1 | filecheck %s --check-prefix=CLUSTER
// CLUSTER:   error[SHARDC-100]: there is no cluster file 'nowhere'
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64, shardc.results = ["v1"]} {
  func.func @stage0_forward(
      %x: tensor<64x64xf32> {shardc.value = "arg0"})
      -> (tensor<64x64xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %x : tensor<64x64xf32>
    return %y : tensor<64x64xf32>
  }
}
