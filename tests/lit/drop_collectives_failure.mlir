// RUN: shardc-opt %s --passes=shardc-drop-collectives --split-input-file --verify-diagnostics
// RUN: not shardc-opt %s --passes=shardc-drop-collectives --split-input-file 2>&1 | filecheck %s
// CHECK:      error[SHARDC-125]: the program communicates between devices ('stablehlo.all_reduce')
// CHECK-NEXT: --> {{.*}}drop_collectives_failure.mlir:10
// CHECK-NEXT: help: give the program of one device, as `jax.jit` without shardings lowers it

// Two devices add up what they have.
func.func @two_devices(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{SHARDC-125}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %s = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Nobody says that there is one device only.
func.func @where_am_i() -> tensor<ui32> {
  // expected-error@+1 {{error[SHARDC-125]: the program communicates between devices ('stablehlo.partition_id')}}
  %0 = stablehlo.partition_id : tensor<ui32>
  return %0 : tensor<ui32>
}
