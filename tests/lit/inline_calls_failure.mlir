// RUN: shardc-opt %s --passes=shardc-inline-calls --split-input-file --verify-diagnostics
// RUN: not shardc-opt %s --passes=shardc-inline-calls --split-input-file 2>&1 | filecheck %s
// CHECK:      error[SHARDC-122]: a call of '@forever', which calls itself, cannot be inlined
// CHECK-NEXT: --> {{.*}}inline_calls_failure.mlir:14
// CHECK-NEXT: help: write it with stablehlo.while, stablehlo.if or stablehlo.case

// A function that calls itself through another.
func.func @main(%a: tensor<f32>) -> tensor<f32> {
  %0 = func.call @forever(%a) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @and_ever(%a: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{error[SHARDC-122]: a call of '@forever', which calls itself}}
  %0 = func.call @forever(%a) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @forever(%a: tensor<f32>) -> tensor<f32> {
  %0 = func.call @and_ever(%a) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A function of which only the type is known.
func.func private @elsewhere(tensor<f32>) -> tensor<f32>
func.func public @main(%a: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{a call of '@elsewhere', which has no body, cannot be inlined}}
  %0 = func.call @elsewhere(%a) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// No function that could be the program.
// expected-error@unknown {{error[SHARDC-121]: the module has 0 public functions and none is called 'main'}}
module {}
