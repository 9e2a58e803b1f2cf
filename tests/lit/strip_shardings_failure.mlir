// RUN: shardc-opt %s --passes=shardc-strip-shardings --split-input-file --verify-diagnostics
// RUN: not shardc-opt %s --passes=shardc-strip-shardings --split-input-file 2>&1 | filecheck %s
// CHECK:      error[SHARDC-202]: the sharding "{devices=[2]<=[2]}" is in the old GSPMD form
// CHECK-NEXT: --> {{.*}}strip_shardings_failure.mlir:8
// CHECK-NEXT: help: export with the Shardy partitioner (jax_use_shardy_partitioner, JAX's default)

// expected-error@+1 {{SHARDC-202}}
func.func @on_an_argument(%a: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}

// -----

func.func @on_an_op(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{error[SHARDC-202]: the sharding "{manual}" is in the old GSPMD form}}
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
