// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings=nothing}' 2>&1 | filecheck %s --check-prefix=JSON
// JSON:      error[SHARDC-200]: the shardings are not those of a plan: {{.*}}
// JSON-NEXT: help: plan again

// RUN: not shardc-opt %s --passes=shardc-apply-shardings 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING:      error[SHARDC-200]: the plan has no shardings for @stage0_forward
// MISSING-NEXT: help: plan again: this plan was made for another version of the program

// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [], \"results\": [], \"ops\": []}}"}' 2>&1 | filecheck %s --check-prefix=OPS
// OPS:      error[SHARDC-200]: @stage0_forward has 1 ops and the plan 0
// OPS-NEXT: help: plan again: this plan was made for another version of the program
// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [{\"dims\": [[]]}], \"results\": [{\"dims\": [[], []]}], \"ops\": [{\"operands\": [{\"dims\": [[], []]}], \"results\": [{\"dims\": [[], []]}]}]}}"}' 2>&1 | filecheck %s --check-prefix=RANK
// RANK:      error[SHARDC-200]: the plan has 1 dims for argument 0 of @stage0_forward, which has 2
// RANK-NEXT: help: plan again, or correct the plan file

// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [{\"dims\": [[], []]}], \"results\": [{\"dims\": [[\"x\"], [\"x\"]]}], \"ops\": [{\"operands\": [{\"dims\": [[], []]}], \"results\": [{\"dims\": [[], []]}]}]}}"}' 2>&1 | filecheck %s --check-prefix=TWICE
// TWICE:      error[SHARDC-200]: the plan uses the axis 'x' twice for result 0 of @stage0_forward
// TWICE-NEXT: help: plan again, or correct the plan file

// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [{\"dims\": [[], []]}], \"results\": [{\"dims\": [[], []]}], \"ops\": [{\"operands\": [{\"dims\": [[\"y\"], []]}], \"results\": [{\"dims\": [[\"y\"], []]}]}]}}"}' 2>&1 | filecheck %s --check-prefix=AXIS
// AXIS:      error[SHARDC-200]: the plan uses the axis 'y' for operand 0 of 'stablehlo.tanh' in @stage0_forward, and its mesh has none
// AXIS-NEXT: help: plan again, or correct the plan file

// RUN: not shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [{\"dims\": [[\"z\"], []]}], \"results\": [{\"dims\": [[], []]}], \"ops\": [{\"operands\": [{\"dims\": [[], []]}], \"results\": [{\"dims\": [[], []]}]}]}}"}' 2>&1 | filecheck %s --check-prefix=DIVIDE
// DIVIDE:      error[SHARDC-200]: a dim of 64 of argument 0 of @stage0_forward does not divide into 3 shards (z)
// DIVIDE-NEXT: help: plan again, or correct the plan file

module {
  sdy.mesh @stage0 = <["x"=4, "z"=3]>
  func.func @stage0_forward(
      %x: tensor<64x64xf32> {shardc.value = "arg0"})
      -> (tensor<64x64xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %x : tensor<64x64xf32>
    return %y : tensor<64x64xf32>
  }
}
