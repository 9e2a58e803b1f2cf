// RUN: shardc-opt %s '--passes=shardc-apply-shardings{shardings="{\"stage0_forward\": {\"arguments\": [{\"dims\": [[\"x\"], []]}], \"results\": [{\"dims\": [[], []]}], \"ops\": [{\"operands\": [{\"dims\": [[\"x\"], []]}], \"results\": [{\"dims\": [[\"x\"], []]}]}]}}"}' | filecheck %s

// A saved plan is written into the module as shardc-plan-shardings would have done.
// CHECK-LABEL: func.func @stage0_forward
//  CHECK-SAME:   {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>
//  CHECK-SAME:   -> (tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@stage0, [{}, {}]>
//       CHECK:   stablehlo.tanh
//  CHECK-SAME:     sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>]>
//  CHECK-SAME:     shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}, {}]>]
module {
  sdy.mesh @stage0 = <["x"=4]>
  func.func @stage0_forward(
      %x: tensor<64x64xf32> {shardc.value = "arg0"})
      -> (tensor<64x64xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %x : tensor<64x64xf32>
    return %y : tensor<64x64xf32>
  }
}
