// RUN: shardc-opt %s --passes=shardc-inline-calls --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-inline-calls --split-input-file --locations | filecheck %s --check-prefix=LOC
// RUN: shardc-opt %S/inputs/repeated_calls.mlir --passes='shardc-inline-calls{most-ops=22}' | filecheck %s --check-prefix=KEPT

// A call in a call, a function called twice, and a function that returns its arguments swapped.
// CHECK-LABEL: func.func public @main
//       CHECK:   %[[ONCE:.*]] = stablehlo.add %arg0, %arg0
//       CHECK:   %[[TWICE:.*]] = stablehlo.add %[[ONCE]], %[[ONCE]]
//       CHECK:   return %arg1, %[[TWICE]]
//   CHECK-NOT:   func.func
func.func public @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = func.call @double(%a) : (tensor<2xf32>) -> tensor<2xf32>
  %1:2 = func.call @swap_and_double(%0, %b) : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  return %1#0, %1#1 : tensor<2xf32>, tensor<2xf32>
}
func.func private @double(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @swap_and_double(%a: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = func.call @double(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %b, %0 : tensor<2xf32>, tensor<2xf32>
}

// -----

// A call inside a loop is inlined inside the loop, where the callee's argument is the loop's value.
// CHECK-LABEL: func.func public @main
//       CHECK:   stablehlo.while
//       CHECK:     %[[NEXT:.*]] = stablehlo.add %[[STATE:.*]], %[[STATE]]
//       CHECK:     stablehlo.return %[[NEXT]]
//   CHECK-NOT:   call
func.func public @main(%a: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%x = %a) : tensor<i32>
  cond {
    %limit = stablehlo.constant dense<100> : tensor<i32>
    %go = stablehlo.compare LT, %x, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = func.call @double(%x) : (tensor<i32>) -> tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  return %0 : tensor<i32>
}
func.func private @double(%a: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.add %a, %a : tensor<i32>
  return %0 : tensor<i32>
}

// -----

// A composite is a call of its decomposition; the only public function becomes @main, whatever its
// name; functions that nothing calls disappear.
// CHECK-LABEL: func.func public @main
//  CHECK-NEXT:   %[[SINE:.*]] = stablehlo.sine %arg0
//  CHECK-NEXT:   return %[[SINE]]
//   CHECK-NOT:   func.func
func.func public @step(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "my.sine" %a {decomposition = @sine} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @sine(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @unused(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @unused(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// A function that a custom call refers to stays.
// CHECK-LABEL: func.func public @main
//       CHECK:   stablehlo.custom_call @sort
//       CHECK: func.func private @order
func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @sort(%a) {called_computations = [@order]} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @order(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}

// -----

// The location of an inlined op is the path of names through the calls, and both positions.
// LOC: stablehlo.maximum
// LOC: [[INSIDE:#loc.*]] = loc("nn.py":7:1)
// LOC: [[CALL:#loc.*]] = loc("train.py":3:1)
// LOC: [[BOTH:#loc.*]] = loc(callsite([[INSIDE]] at [[CALL]]))
// LOC: loc("jit(step)/transpose(jvp(relu))/max"([[BOTH]]))
func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @relu(%a) : (tensor<2xf32>) -> tensor<2xf32> loc("jit(step)/transpose(jvp(relu))"("train.py":3:1))
  return %0 : tensor<2xf32>
}
func.func private @relu(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.maximum %a, %a : tensor<2xf32> loc("max"("nn.py":7:1))
  return %0 : tensor<2xf32>
}


// Eight calls of a function of five ops are more than 22 ops: it stays a function, and gives back
// what only it can know. The function around two of the calls is inlined; so is what the kept one
// calls. The unused result is gone, the constant one is made beside the call that uses it, and the
// argument that is returned is the operand.
// KEPT-LABEL: func.func public @main
//      KEPT:    %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
//      KEPT:    call @layer(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
//  KEPT-NOT:    constant
// KEPT-COUNT-7: call @layer
//      KEPT:    return %{{.*}}, %arg0, %[[ONE]]
//      KEPT:  func.func private @layer(%arg0: tensor<4xf32>) -> tensor<4xf32>
// KEPT-NEXT:    stablehlo.tanh
//  KEPT-NOT:  func.func
