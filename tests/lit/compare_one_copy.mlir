// RUN: shardc-opt %s --passes=shardc-compare-one-copy | filecheck %s
// RUN: shardc-opt %s --passes=shardc-compare-one-copy,shardc-compare-one-copy | filecheck %s

// A policy of jax.checkpoint keeps the maximum, not what it is the maximum of: it is made again from
// the copy that it is compared with. The sum that is kept beside it stays.
// CHECK-LABEL: func.func @kept_maximum
//       CHECK:   %[[SUM:.*]] = stablehlo.reduce(%{{.*}}) applies stablehlo.add
//       CHECK:   %[[KEPT:.*]]:2 = stablehlo.optimization_barrier %{{.*}}, %[[SUM]]
//       CHECK:   %[[COPY:.*]] = stablehlo.sine %[[KEPT]]#0
//       CHECK:   %[[TOP:.*]] = stablehlo.reduce(%[[COPY]] init: %{{.*}}) applies stablehlo.maximum
//       CHECK:   %[[TOPS:.*]] = stablehlo.broadcast_in_dim %[[TOP]]
//       CHECK:   stablehlo.compare EQ, %[[COPY]], %[[TOPS]]
//       CHECK:   %[[SUMS:.*]] = stablehlo.broadcast_in_dim %[[KEPT]]#1
//       CHECK:   stablehlo.subtract %[[COPY]], %[[SUMS]]
func.func @kept_maximum(%x: tensor<4x3xf32>) -> (tensor<4x3xi1>, tensor<4x3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.sine %x : tensor<4x3xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.reduce_precision %1, format = e8m23 : tensor<4xf32>
  %3 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %4:3 = stablehlo.optimization_barrier %x, %2, %3 : tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>
  %5 = stablehlo.sine %4#0 : tensor<4x3xf32>
  %6 = stablehlo.broadcast_in_dim %4#1, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
  %7 = stablehlo.compare EQ, %5, %6 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
  %8 = stablehlo.broadcast_in_dim %4#2, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
  %9 = stablehlo.subtract %5, %8 : tensor<4x3xf32>
  return %7, %9 : tensor<4x3xi1>, tensor<4x3xf32>
}

// Of another value than the copy's, a maximum stays as it was kept.
// CHECK-LABEL: func.func @another
//       CHECK:   %[[KEPT:.*]]:2 = stablehlo.optimization_barrier
//       CHECK:   %[[TOPS:.*]] = stablehlo.broadcast_in_dim %[[KEPT]]#1
//       CHECK:   stablehlo.compare EQ, %{{.*}}, %[[TOPS]]
func.func @another(%x: tensor<4x3xf32>) -> tensor<4x3xi1> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.sine %x : tensor<4x3xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %4:2 = stablehlo.optimization_barrier %x, %1 : tensor<4x3xf32>, tensor<4xf32>
  %5 = stablehlo.cosine %4#0 : tensor<4x3xf32>
  %6 = stablehlo.broadcast_in_dim %4#1, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
  %7 = stablehlo.compare EQ, %5, %6 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
  return %7 : tensor<4x3xi1>
}

// Two draws of random numbers are no copies of each other.
// CHECK-LABEL: func.func @drawn_twice
//       CHECK:   %[[KEPT:.*]] = stablehlo.optimization_barrier
//       CHECK:   %[[TOPS:.*]] = stablehlo.broadcast_in_dim %[[KEPT]]
//       CHECK:   stablehlo.compare EQ, %{{.*}}, %[[TOPS]]
func.func @drawn_twice(%x: tensor<f32>) -> tensor<4x3xi1> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = stablehlo.constant dense<[4, 3]> : tensor<2xi64>
  %0 = stablehlo.rng %zero, %x, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<4x3xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.optimization_barrier %1 : tensor<4xf32>
  %3 = stablehlo.rng %zero, %x, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<4x3xf32>
  %4 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.compare EQ, %3, %4 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
  return %5 : tensor<4x3xi1>
}

// A loop stacks up what it got and the maximum; one that goes backwards makes the copy from the rows.
// CHECK-LABEL: func.func @rows
//       CHECK:   stablehlo.while
//       CHECK:   stablehlo.while
//       CHECK:     stablehlo.dynamic_slice
//       CHECK:     %[[COPY:.*]] = stablehlo.sine
//       CHECK:     %[[TOP:.*]] = stablehlo.reduce(%[[COPY]] init: %{{.*}}) applies stablehlo.maximum
//       CHECK:     %[[ROW:.*]] = stablehlo.broadcast_in_dim %[[TOP]]
//       CHECK:     stablehlo.reshape %[[ROW]]
//       CHECK:     stablehlo.compare EQ, %[[COPY]]
func.func @rows(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %hs = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %ms = stablehlo.constant dense<0.0> : tensor<3x1xf32>
  %0:4 = stablehlo.while(%i = %none, %h = %x, %a = %hs, %b = %ms)
      : tensor<i32>, tensor<4xf32>, tensor<3x4xf32>, tensor<3x1xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.broadcast_in_dim %h, dims = [1] : (tensor<4xf32>) -> tensor<1x4xf32>
    %2 = stablehlo.dynamic_update_slice %a, %1, %i, %none
      : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %3 = stablehlo.sine %h : tensor<4xf32>
    %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.maximum across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<1x1xf32>
    %6 = stablehlo.dynamic_update_slice %b, %5, %i, %none
      : (tensor<3x1xf32>, tensor<1x1xf32>, tensor<i32>, tensor<i32>) -> tensor<3x1xf32>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %3, %2, %6
      : tensor<i32>, tensor<4xf32>, tensor<3x4xf32>, tensor<3x1xf32>
  }
  %8:2 = stablehlo.while(%i = %none, %g = %0#1) : tensor<i32>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.subtract %two, %i : tensor<i32>
    %2 = stablehlo.dynamic_slice %0#2, %1, %none, sizes = [1, 4]
      : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x4xf32>) -> tensor<4xf32>
    %4 = stablehlo.dynamic_slice %0#3, %1, %none, sizes = [1, 1]
      : (tensor<3x1xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x1xf32>) -> tensor<f32>
    %6 = stablehlo.sine %3 : tensor<4xf32>
    %7 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %9 = stablehlo.compare EQ, %6, %7 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %10 = stablehlo.select %9, %g, %6 : tensor<4xi1>, tensor<4xf32>
    %11 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %11, %10 : tensor<i32>, tensor<4xf32>
  }
  return %8#1, %0#2 : tensor<4xf32>, tensor<3x4xf32>
}

// The bindings cannot read complex constants: splats are known by their text, others stand alone.
// CHECK-LABEL: func.func @complex_constants
//       CHECK:   stablehlo.optimization_barrier
//       CHECK:   stablehlo.multiply
//       CHECK:   %[[COPY:.*]] = stablehlo.multiply
//       CHECK:   %[[PART:.*]] = stablehlo.real %[[COPY]]
//       CHECK:   stablehlo.reduce({{.*}}) applies stablehlo.maximum
//       CHECK:   stablehlo.compare EQ, %[[PART]]
func.func @complex_constants(%x: tensor<3xcomplex<f32>>) -> tensor<3xi1> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %half = stablehlo.constant dense<(0.5,1.0)> : tensor<3xcomplex<f32>>
  %phases = stablehlo.constant dense<[(1.0,0.0), (0.0,1.0), (0.5,0.5)]> : tensor<3xcomplex<f32>>
  %0 = stablehlo.multiply %x, %half : tensor<3xcomplex<f32>>
  %1 = stablehlo.multiply %0, %phases : tensor<3xcomplex<f32>>
  %2 = stablehlo.real %1 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  %3 = stablehlo.reduce(%2 init: %low) applies stablehlo.maximum across dimensions = [0]
    : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  %4:2 = stablehlo.optimization_barrier %x, %3 : tensor<3xcomplex<f32>>, tensor<f32>
  %5 = stablehlo.multiply %4#0, %half : tensor<3xcomplex<f32>>
  %6 = stablehlo.multiply %5, %phases : tensor<3xcomplex<f32>>
  %7 = stablehlo.real %6 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  %8 = stablehlo.broadcast_in_dim %4#1, dims = [] : (tensor<f32>) -> tensor<3xf32>
  %9 = stablehlo.compare EQ, %7, %8 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
  return %9 : tensor<3xi1>
}

// A loop carries the largest element so far of what it makes anew in each iteration: that is made
// once, in front of it. What it only stacks up stays.
// CHECK-LABEL: func.func @largest_so_far
//       CHECK:   %[[SINE:.*]] = stablehlo.sine %arg0
//  CHECK-NEXT:   stablehlo.while
//   CHECK-NOT:   stablehlo.sine
//       CHECK:   stablehlo.reduce(%[[SINE]] init: %{{.*}}) applies stablehlo.maximum
//       CHECK:   stablehlo.cosine
func.func @largest_so_far(%x: tensor<3xf32>, %rows: tensor<4x3xf32>) -> (tensor<f32>, tensor<4x3xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0:3 = stablehlo.while(%i = %zero, %top = %low, %stack = %rows) : tensor<i32>, tensor<f32>, tensor<4x3xf32>
  cond {
    %end = stablehlo.constant dense<4> : tensor<i32>
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %sine = stablehlo.sine %x : tensor<3xf32>
    %largest = stablehlo.reduce(%sine init: %low) applies stablehlo.maximum across dimensions = [0]
      : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %more = stablehlo.maximum %top, %largest : tensor<f32>
    %cosine = stablehlo.cosine %x : tensor<3xf32>
    %row = stablehlo.reshape %cosine : (tensor<3xf32>) -> tensor<1x3xf32>
    %written = stablehlo.dynamic_update_slice %stack, %row, %i, %zero
      : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %more, %written : tensor<i32>, tensor<f32>, tensor<4x3xf32>
  }
  return %0#1, %0#2 : tensor<f32>, tensor<4x3xf32>
}
