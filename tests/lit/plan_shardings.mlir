// RUN: shardc-opt %s --passes=shardc-plan-shardings | filecheck %s
// RUN: shardc-opt %s --passes=shardc-plan-shardings | shardc-opt - --passes=shardc-insert-reshards,shardc-lower-collectives | filecheck %s --check-prefix=AGAIN

// A layer whose batch is much larger than its weight: each device takes a part of the batch.
//       CHECK: shardc.cluster = {device = {{{.*}}name = "virtual-cpu"
//  CHECK-SAME: shardc.stage_reports = [{asked = {forward =
//  CHECK-SAME: memory = {inputs = 4456448 : i64, temporaries = 3145728 : i64}
//  CHECK-SAME: peak_at = ["stage0_forward",
//  CHECK-SAME: seconds = {forward = {{.*}} : f64}
//       CHECK: sdy.mesh @stage0 = <["x"=4]>
// CHECK-LABEL: func.func @stage0_forward
//  CHECK-SAME:   %arg0: tensor<4096x256xf32> {sdy.sharding = #sdy.sharding<@stage0,
//  CHECK-SAME:   %arg1: tensor<256x256xf32> {sdy.sharding = #sdy.sharding<@stage0, [{}, {}]>
//  CHECK-SAME:   -> (tensor<4096x256xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>

// Its text is read again: later passes price collectives on the cluster in the module.
//       AGAIN: shardc.cluster = {device = {
//       AGAIN:   sdy.all_slice [{"x"}, {}] %arg0

// Every op says how its results lie and how it wants its operands.
//       CHECK:   stablehlo.dot_general
//  CHECK-SAME:     sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>]>
//  CHECK-SAME:     shardc.in_shardings = [#sdy.sharding<@stage0, [{"x"}, {}]>, #sdy.sharding<@stage0, [{}, {}]>]
//       CHECK:   stablehlo.tanh
//  CHECK-SAME:     sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>]>
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64, shardc.results = ["v1"]} {
  sdy.mesh @stage0 = <["x"=4]>
  func.func @stage0_forward(
      %x: tensor<4096x256xf32> {shardc.value = "arg0"},
      %w: tensor<256x256xf32> {shardc.value = "arg1"})
      -> (tensor<4096x256xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4096x256xf32>, tensor<256x256xf32>) -> tensor<4096x256xf32>
    %y = stablehlo.tanh %h : tensor<4096x256xf32>
    %z = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (tensor<4096x256xf32>, tensor<256x256xf32>) -> tensor<4096x256xf32>
    return %z : tensor<4096x256xf32>
  }
}
