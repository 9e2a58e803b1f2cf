// RUN: not shardc-opt %s --passes=shardc-insert-reshards 2>&1 | filecheck %s

// CHECK:      error[SHARDC-201]: 'stablehlo.add' takes 2 operands, but the plan has 1 shardings for it
// CHECK-NEXT: --> {{.*}}insert_reshards_failure.mlir:10
// CHECK-NEXT: help: plan again: this plan was made for another version of the program

sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  // A plan for another program: one sharding where the op takes two operands.
  %0 = stablehlo.add %a, %a {shardc.in_shardings = [#sdy.sharding<@mesh, [{"x"}]>],
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<8xf32>
  return %0 : tensor<8xf32>
}
