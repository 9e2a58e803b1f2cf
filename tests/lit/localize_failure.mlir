// RUN: not shardc-opt %s --passes=shardc-localize 2>&1 | filecheck %s

// CHECK:      error[SHARDC-201]: 'stablehlo.reverse' cannot run on the parts that its shardings give to each device: axes ['x'] split a dim that the op needs whole (permutation)
// CHECK-NEXT: --> {{.*}}localize_failure.mlir:11
// CHECK-NEXT: help: plan again: this plan was made for another version of the program

sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  // The first device would need what the last one has.
  %0 = stablehlo.reverse %a, dims = [0]
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<8xf32>
  return %0 : tensor<8xf32>
}
