// RUN: shardc-opt %s --passes=shardc-hoist-host-calls | filecheck %s
// RUN: shardc-opt %s --passes=shardc-hoist-host-calls,shardc-hoist-host-calls | filecheck %s

// What callbacks 0 and 2 are given comes out behind the results of the step; the one in a loop has no
// value to give, and falls silent. A callback that gives something back stays.
//       CHECK: shardc.host_calls = [array<i64: 0, 1, 2>, array<i64: 2>]
//  CHECK-SAME: shardc.silent_calls = ["hoist_host_calls.mlir:[[#]]"]
// CHECK-LABEL: func.func public @main
//  CHECK-SAME:   -> (tensor<4xf32> {jax.result_info = "y"}, tensor<4xf32>, tensor<i32>)
//       CHECK:   %[[BACK:.*]] = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0)
//       CHECK:   stablehlo.while
//   CHECK-NOT:   @xla_ffi_python_cpu_callback(
//       CHECK:   return %[[BACK]], %arg0, %arg1
func.func public @main(%x: tensor<4xf32>, %i: tensor<i32>) -> (tensor<4xf32> {jax.result_info = "y"}) {
  stablehlo.custom_call @xla_ffi_python_cpu_callback(%x, %i) {has_side_effect = true, mhlo.backend_config = {index = 0 : ui64}} : (tensor<4xf32>, tensor<i32>) -> ()
  %y = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {mhlo.backend_config = {index = 3 : ui64}} : (tensor<4xf32>) -> tensor<4xf32>
  %0 = stablehlo.while(%j = %i) : tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    stablehlo.custom_call @xla_ffi_python_cpu_callback(%j) {has_side_effect = true, mhlo.backend_config = {index = 1 : ui64}} : (tensor<i32>) -> ()
    stablehlo.return %j : tensor<i32>
  }
  stablehlo.custom_call @xla_ffi_python_cpu_callback() {has_side_effect = true, mhlo.backend_config = {index = 2 : ui64}} : () -> ()
  return %y : tensor<4xf32>
}
