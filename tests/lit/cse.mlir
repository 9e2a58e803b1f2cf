// RUN: shardc-opt %s --passes=shardc-cse | filecheck %s

// Equal ops are computed once.
// CHECK-LABEL: func.func @equal_ops
//       CHECK:   %[[SINE:.*]] = stablehlo.sine %arg0
//  CHECK-NEXT:   stablehlo.add %[[SINE]], %[[SINE]]
func.func @equal_ops(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %a : tensor<4xf32>
  %1 = stablehlo.sine %a : tensor<4xf32>
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// What jax.checkpoint recomputes behind a barrier is not merged with the original.
// CHECK-LABEL: func.func @recomputed
//       CHECK:   stablehlo.sine %arg0
//       CHECK:   %[[AGAIN:.*]] = stablehlo.optimization_barrier %arg0
//       CHECK:   stablehlo.sine %[[AGAIN]]
func.func @recomputed(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %a : tensor<4xf32>
  %1 = stablehlo.optimization_barrier %a : tensor<4xf32>
  %2 = stablehlo.sine %1 : tensor<4xf32>
  %3 = stablehlo.add %0, %2 : tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Operations with effects stay apart.
// CHECK-LABEL: func.func @effects
//       CHECK:   stablehlo.custom_call @count
//       CHECK:   stablehlo.custom_call @count
func.func @effects() -> (tensor<i32>, tensor<i32>) {
  %0 = stablehlo.custom_call @count() {has_side_effect = true} : () -> tensor<i32>
  %1 = stablehlo.custom_call @count() {has_side_effect = true} : () -> tensor<i32>
  return %0, %1 : tensor<i32>, tensor<i32>
}
