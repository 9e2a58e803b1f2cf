// RUN: shardc-opt %s --passes=shardc-summarize-calls --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-summarize-calls,shardc-summarize-calls --split-input-file | filecheck %s

// The backward pass of a layer works part by part along the batch (factor 0), the outputs (1) and
// the inputs (2 of the weight, 3 of x). The gradient of the weight is a sum over the batch, that of
// x over the outputs. Cost: FLOPs, bytes read and written, FLOPs of products, bytes inside.
//       CHECK: call @backward
//  CHECK-SAME:   shardc.cost = array<i64: 2016, 1032, 840, 2016, 0>
//  CHECK-SAME:   shardc.factor_sizes = array<i64: 6, 4, 21, 21>
//  CHECK-SAME:   shardc.factors = [array<i64: 0, 1>, array<i64: 2, 1>, array<i64: 0, 3>, array<i64: 3, 1>, array<i64: 0, 2>]
//  CHECK-SAME:   shardc.summed = [array<i64: 0>, array<i64: 1>]
//       CHECK: func.func private @backward
//  CHECK-SAME:   shardc.factor_sizes = array<i64: 6, 4, 21, 21>
//       CHECK:   stablehlo.dot_general {{.*}}shardc.called_factors = [array<i64: 3, 1>]
func.func public @main(%g: tensor<6x4xf32>, %w: tensor<21x4xf32>, %x: tensor<6x21xf32>) -> (tensor<21x4xf32>, tensor<6x21xf32>) {
  %0:2 = func.call @backward(%g, %w, %x) : (tensor<6x4xf32>, tensor<21x4xf32>, tensor<6x21xf32>) -> (tensor<21x4xf32>, tensor<6x21xf32>)
  return %0#0, %0#1 : tensor<21x4xf32>, tensor<6x21xf32>
}
func.func private @backward(%g: tensor<6x4xf32>, %w: tensor<21x4xf32>, %x: tensor<6x21xf32>) -> (tensor<21x4xf32>, tensor<6x21xf32>) {
  %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : (tensor<6x21xf32>, tensor<6x4xf32>) -> tensor<21x4xf32>
  %dx = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<21x4xf32>) -> tensor<6x21xf32>
  return %dw, %dx : tensor<21x4xf32>, tensor<6x21xf32>
}

// -----

// A norm needs its rows whole, and squares a sum over them; what numbers its rows needs all rows; a
// sum that is squared is more than a sum; a transpose puts one dim of x where another one was.
//       CHECK: call @norm
//  CHECK-SAME:   shardc.factors = [array<i64: 0, -1>, array<i64: 0, -1>]
//       CHECK: call @number
//  CHECK-SAME:   shardc.factors = [array<i64: -1, 0>, array<i64: -1, 0>]
//       CHECK: call @squared_sum
//  CHECK-SAME:   shardc.factors = [array<i64: -1, 0>, array<i64: 0>]
//       CHECK: call @symmetric
//  CHECK-SAME:   shardc.factors = [array<i64: -1, -1>, array<i64: -1, -1>]
func.func public @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>) {
  %0 = func.call @norm(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = func.call @number(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = func.call @squared_sum(%x) : (tensor<4x4xf32>) -> tensor<4xf32>
  %3 = func.call @symmetric(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %1, %2, %3 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>
}
func.func private @norm(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.divide %x, %b : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
func.func private @number(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %i = stablehlo.iota dim = 0 : tensor<4x4xf32>
  %y = stablehlo.add %x, %i : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
func.func private @squared_sum(%x: tensor<4x4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %y = stablehlo.multiply %s, %s : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @symmetric(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.add %x, %t : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

// What a loop carries is cut along it, and a function that is called is called by others.
//       CHECK: call @outer
//  CHECK-SAME:   shardc.factors = [array<i64: 0, 1>, array<i64: 0, 1>]
//       CHECK: func.func private @outer
//       CHECK:   func.call @inner
//  CHECK-SAME:   shardc.factors = [array<i64: 0, 1>, array<i64: 0, 1>]
func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = func.call @outer(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
func.func private @outer(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<8x4xf32>
  cond {
    %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %z = func.call @inner(%y) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    stablehlo.return %next, %z : tensor<i32>, tensor<8x4xf32>
  }
  return %0#1 : tensor<8x4xf32>
}
func.func private @inner(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %y = stablehlo.tanh %x : tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
