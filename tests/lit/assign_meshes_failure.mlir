// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=2}" 2>&1 | filecheck %s --check-prefix=COUNT
// COUNT:      error[SHARDC-101]: 1 meshes were given for 2 stages
// COUNT-NEXT: help: give one mesh per stage, separated by '/'

// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=two/x=2}" 2>&1 | filecheck %s --check-prefix=WORD
// WORD:      error[SHARDC-101]: 'two' is not a mesh
// WORD-NEXT: help: write axes and sizes such as x=2,y=4 or x=2,y=2@0,1,2,3

// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=2@0,1,2/x=2}" 2>&1 | filecheck %s --check-prefix=DEVICES
// DEVICES:      error[SHARDC-101]: the mesh 'x=2@0,1,2' has 2 positions and 3 devices

// RUN: not shardc-opt %s "--passes=shardc-assign-meshes{meshes=x=2/x=2},shardc-assign-meshes{meshes=x=2/x=2}" 2>&1 | filecheck %s --check-prefix=TWICE
// TWICE:      error[SHARDC-101]: the module already declares meshes
module attributes {shardc.num_stages = 2 : i64} {
  func.func @stage0_forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
