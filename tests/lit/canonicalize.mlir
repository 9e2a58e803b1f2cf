// RUN: shardc-opt %s --passes=shardc-canonicalize | filecheck %s

// An op that nothing uses disappears.
// CHECK-LABEL: func.func @dead
//  CHECK-NEXT:   return %arg0
func.func @dead(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %dead = stablehlo.add %a, %a : tensor<2x3xf32>
  return %a : tensor<2x3xf32>
}

// The constants of a loop stand before it, where equal ones can be merged.
// CHECK-LABEL: func.func @constant_in_a_loop
//  CHECK-NEXT:   %[[LIMIT:.*]] = stablehlo.constant dense<100>
//       CHECK:   stablehlo.while
//       CHECK:     stablehlo.compare LT, %{{.*}}, %[[LIMIT]]
func.func @constant_in_a_loop(%a: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%x = %a) : tensor<i32>
  cond {
    %limit = stablehlo.constant dense<100> : tensor<i32>
    %go = stablehlo.compare LT, %x, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %x, %x : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  return %0 : tensor<i32>
}

// Operands without elements along the dim go; of one that is left nothing is put together. No
// value without elements is taken from an argument.
// CHECK-LABEL: func.func @empty_operands
//  CHECK-NEXT:   %[[NONE:.*]] = stablehlo.constant dense<> : tensor<0x3xf32>
//  CHECK-NEXT:   %[[BOTH:.*]] = stablehlo.concatenate %arg0, %arg0, dim = 0
//  CHECK-NEXT:   return %[[BOTH]], %arg0, %[[NONE]]
func.func @empty_operands(%a: tensor<2x3xf32>, %none: tensor<0x3xf32>)
    -> (tensor<4x3xf32>, tensor<2x3xf32>, tensor<0x3xf32>) {
  %0 = stablehlo.concatenate %none, %a, %none, %a, dim = 0
    : (tensor<0x3xf32>, tensor<2x3xf32>, tensor<0x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.concatenate %a, %none, dim = 0
    : (tensor<2x3xf32>, tensor<0x3xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.concatenate %none, %none, dim = 0
    : (tensor<0x3xf32>, tensor<0x3xf32>) -> tensor<0x3xf32>
  return %0, %1, %2 : tensor<4x3xf32>, tensor<2x3xf32>, tensor<0x3xf32>
}

// What is summed or padded over no elements is its initial value; a product over none is zero.
// CHECK-LABEL: func.func @from_nothing
//   CHECK-DAG:   %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<3x3xf32>
//   CHECK-DAG:   %[[SUM:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<3xf32>
//   CHECK-DAG:   %[[PAD:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
//       CHECK:   return %[[ZERO]], %[[SUM]], %[[PAD]]
func.func @from_nothing(%none: tensor<0x3xf32>, %first: tensor<f32>)
    -> (tensor<3x3xf32>, tensor<3xf32>, tensor<2x3xf32>) {
  %0 = stablehlo.dot_general %none, %none, contracting_dims = [0] x [0]
    : (tensor<0x3xf32>, tensor<0x3xf32>) -> tensor<3x3xf32>
  %1 = stablehlo.exponential %none : tensor<0x3xf32>
  %2 = stablehlo.reduce(%1 init: %first) applies stablehlo.maximum across dimensions = [0]
    : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
  %3 = stablehlo.pad %1, %first, low = [1, 0], high = [1, 0], interior = [0, 0]
    : (tensor<0x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %0, %2, %3 : tensor<3x3xf32>, tensor<3xf32>, tensor<2x3xf32>
}

// The bindings cannot make a constant of no complex numbers.
// CHECK-LABEL: func.func @complex_of_nothing
//  CHECK-NEXT:   %[[NONE:.*]] = stablehlo.add %arg0, %arg0 : tensor<0xcomplex<f32>>
//  CHECK-NEXT:   stablehlo.concatenate %[[NONE]], %[[NONE]]
func.func @complex_of_nothing(%a: tensor<0xcomplex<f32>>) -> tensor<0xcomplex<f32>> {
  %0 = stablehlo.add %a, %a : tensor<0xcomplex<f32>>
  %1 = stablehlo.concatenate %0, %0, dim = 0
    : (tensor<0xcomplex<f32>>, tensor<0xcomplex<f32>>) -> tensor<0xcomplex<f32>>
  return %1 : tensor<0xcomplex<f32>>
}

// JAX converts where a value that had been a Python number gets a type of its own.
// CHECK-LABEL: func.func @same_type
//  CHECK-NEXT:   return %arg0
func.func @same_type(%a: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.convert %a : tensor<f32>
  return %0 : tensor<f32>
}

// A product with 1 is what it multiplies, and so is a quotient by 1; not of complex numbers, whose
// infinities it would lose, and not 1 divided by something.
// CHECK-LABEL: func.func @times_one
//  CHECK-NEXT:   %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//       CHECK:   %[[ONES:.*]] = stablehlo.broadcast_in_dim %[[ONE]], dims = []
//  CHECK-NEXT:   %[[INVERSE:.*]] = stablehlo.divide %[[ONES]], %arg0
//  CHECK-NEXT:   %[[COMPLEX:.*]] = stablehlo.multiply %arg1, %{{.*}}
//  CHECK-NEXT:   return %arg0, %arg0, %[[INVERSE]], %[[COMPLEX]]
func.func @times_one(%a: tensor<4xf32>, %c: tensor<4xcomplex<f32>>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xcomplex<f32>>) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %complex = stablehlo.constant dense<(1.0, 0.0)> : tensor<4xcomplex<f32>>
  %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %0 = stablehlo.multiply %a, %ones : tensor<4xf32>
  %1 = stablehlo.multiply %ones, %0 : tensor<4xf32>
  %2 = stablehlo.divide %a, %ones : tensor<4xf32>
  %3 = stablehlo.divide %ones, %a : tensor<4xf32>
  %4 = stablehlo.multiply %c, %complex : tensor<4xcomplex<f32>>
  return %1, %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xcomplex<f32>>
}

// What stands in an op that goes is looked at before it.
// CHECK-LABEL: func.func @reducer_that_converts
//  CHECK-NEXT:   %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//  CHECK-NEXT:   %[[FILLED:.*]] = stablehlo.broadcast_in_dim %[[ZERO]], dims = []
//  CHECK-NEXT:   return %[[FILLED]]
func.func @reducer_that_converts(%x: tensor<0x4xf32>) -> tensor<4xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.convert %a : tensor<f32>
    %s = stablehlo.add %c, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<0x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// A product starts from 1, a sum from 0. Where counting the start twice changes nothing, it stays.
// CHECK-LABEL: func.func @starts
//   CHECK-DAG:   %[[NONE:.*]] = stablehlo.constant dense<0> : tensor<i32>
//   CHECK-DAG:   %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//       CHECK:   %[[PRODUCT:.*]] = stablehlo.reduce(%arg0 init: %[[ONE]]) applies stablehlo.multiply
//       CHECK:   %[[START:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<3xf32>
//       CHECK:   stablehlo.multiply %[[START]], %[[PRODUCT]]
//       CHECK:   %[[SUM:.*]] = stablehlo.reduce(%arg1 init: %[[NONE]]) applies stablehlo.add
//       CHECK:   stablehlo.add %{{.*}}, %[[SUM]]
//       CHECK:   stablehlo.reduce(%arg0 init: %arg2) applies stablehlo.maximum
func.func @starts(%x: tensor<4x3xf32>, %n: tensor<4xi32>, %s: tensor<f32>)
    -> (tensor<3xf32>, tensor<i32>, tensor<3xf32>) {
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %0 = stablehlo.reduce(%x init: %s) applies stablehlo.multiply across dimensions = [0]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  %1 = stablehlo.reduce(%n init: %seven) applies stablehlo.add across dimensions = [0]
    : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
  %2 = stablehlo.reduce(%x init: %s) applies stablehlo.maximum across dimensions = [0]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %0, %1, %2 : tensor<3xf32>, tensor<i32>, tensor<3xf32>
}

// The bindings cannot make the 0 that it would start from.
// CHECK-LABEL: func.func @complex_start
//  CHECK-NEXT:   %[[SUM:.*]] = stablehlo.reduce(%arg0 init: %arg1) applies stablehlo.add
//  CHECK-NEXT:   return %[[SUM]]
func.func @complex_start(%x: tensor<4xcomplex<f32>>, %s: tensor<complex<f32>>) -> tensor<complex<f32>> {
  %0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0]
    : (tensor<4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>>
  return %0 : tensor<complex<f32>>
}
