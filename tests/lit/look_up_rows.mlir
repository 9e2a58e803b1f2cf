// RUN: shardc-opt %s --passes=shardc-look-up-rows{rows=5},shardc-canonicalize --split-input-file | filecheck %s
// RUN: shardc-opt %s --passes=shardc-look-up-rows{rows=5},shardc-look-up-rows{rows=5},shardc-canonicalize --split-input-file | filecheck %s

// A lookup and its gradient. Ids outside pick zeros; where the table has more in a column that is not
// finite than the row that was picked, the result is nan. What turned the gradient back is gone.
// CHECK-LABEL: func.func @main
//   CHECK-DAG:   %[[NAN:.*]] = stablehlo.constant dense<0x7FC00000> : tensor<4x3xf32>
//       CHECK:   %[[I:.*]] = stablehlo.reshape %arg1 : (tensor<4xi32>) -> tensor<4x1xi32>
//       CHECK:   %[[ROWS:.*]] = "stablehlo.gather"(%arg0, %[[I]])
//  CHECK-SAME:     offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1
//       CHECK:   %[[NOT_BELOW:.*]] = stablehlo.compare GE, %arg1
//       CHECK:   %[[NOT_ABOVE:.*]] = stablehlo.compare LE, %arg1
//       CHECK:   %[[INSIDE:.*]] = stablehlo.and %[[NOT_BELOW]], %[[NOT_ABOVE]]
//       CHECK:   %[[PICKED:.*]] = stablehlo.select %{{.*}}, %[[ROWS]], %{{.*}} : tensor<4x3xi1>
//       CHECK:   stablehlo.is_finite %arg0
//       CHECK:   %[[COUNT:.*]] = stablehlo.reduce(%{{.*}}) applies stablehlo.add across dimensions = [0] : (tensor<9x3xf32>
//       CHECK:   %[[ALL:.*]] = stablehlo.broadcast_in_dim %[[COUNT]], dims = [1]
//       CHECK:   stablehlo.is_finite %[[PICKED]]
//       CHECK:   %[[MORE:.*]] = stablehlo.compare GT, %[[ALL]], %{{.*}} : (tensor<4x3xf32>
//       CHECK:   %[[RESULT:.*]] = stablehlo.select %[[MORE]], %[[NAN]], %[[PICKED]]
//       CHECK:   %[[SUM:.*]] = "stablehlo.scatter"(%{{.*}}, %{{.*}}, %arg2)
//  CHECK-SAME:     update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1
//       CHECK:     stablehlo.add
//       CHECK:   stablehlo.is_finite %arg2
//       CHECK:   stablehlo.reduce({{.*}}) applies stablehlo.add across dimensions = [0] : (tensor<4x3xf32>
//       CHECK:   %[[GRADIENT:.*]] = stablehlo.add %[[SUM]]
//   CHECK-NOT:   stablehlo.dot_general
//   CHECK-NOT:   stablehlo.transpose
//       CHECK:   return %arg0, %[[RESULT]], %[[GRADIENT]]
func.func @main(%table: tensor<9x3xf32>, %ids: tensor<4xi32>, %dy: tensor<4x3xf32>)
    -> (tensor<9x3xf32>, tensor<4x3xf32>, tensor<9x3xf32>) {
  %iota = stablehlo.iota dim = 0 : tensor<9xi32>
  %0 = stablehlo.broadcast_in_dim %ids, dims = [0] : (tensor<4xi32>) -> tensor<4x9xi32>
  %1 = stablehlo.broadcast_in_dim %iota, dims = [1] : (tensor<9xi32>) -> tensor<4x9xi32>
  %2 = stablehlo.compare EQ, %1, %0, SIGNED : (tensor<4x9xi32>, tensor<4x9xi32>) -> tensor<4x9xi1>
  %3 = stablehlo.convert %2 : (tensor<4x9xi1>) -> tensor<4x9xf32>
  %4 = stablehlo.dot_general %3, %table, contracting_dims = [1] x [0]
    : (tensor<4x9xf32>, tensor<9x3xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.dot_general %dy, %3, contracting_dims = [0] x [0]
    : (tensor<4x3xf32>, tensor<4x9xf32>) -> tensor<3x9xf32>
  %6 = stablehlo.transpose %5, dims = [1, 0] : (tensor<3x9xf32>) -> tensor<9x3xf32>
  return %table, %4, %6 : tensor<9x3xf32>, tensor<4x3xf32>, tensor<9x3xf32>
}

// -----

// In a loop, with the table from outside and in 16 bits; the sums are kept in 32.
// CHECK-LABEL: func.func @main
//       CHECK:   stablehlo.while
//       CHECK:     "stablehlo.gather"(%arg0
//       CHECK:     stablehlo.convert %{{.*}} : (tensor<4x3xbf16>) -> tensor<4x3xf32>
//       CHECK:     "stablehlo.scatter"
//       CHECK:     }) : (tensor<9x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<9x3xf32>
//       CHECK:     stablehlo.convert %{{.*}} : (tensor<9x3xf32>) -> tensor<9x3xbf16>
//   CHECK-NOT:     stablehlo.dot_general
func.func @main(%table: tensor<9x3xbf16>, %ids: tensor<4xi32>) -> tensor<9x3xbf16> {
  %iota = stablehlo.iota dim = 1 : tensor<4x9xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<9x3xbf16>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %ids, %g = %zero, %n = %three)
    : tensor<4xi32>, tensor<9x3xbf16>, tensor<i32>
  cond {
    %1 = stablehlo.constant dense<0> : tensor<i32>
    %2 = stablehlo.compare GT, %n, %1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  } do {
    %1 = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<4xi32>) -> tensor<4x9xi32>
    %2 = stablehlo.compare EQ, %1, %iota, SIGNED : (tensor<4x9xi32>, tensor<4x9xi32>) -> tensor<4x9xi1>
    %3 = stablehlo.convert %2 : (tensor<4x9xi1>) -> tensor<4x9xbf16>
    %4 = stablehlo.dot_general %3, %table, contracting_dims = [1] x [0]
      : (tensor<4x9xbf16>, tensor<9x3xbf16>) -> tensor<4x3xbf16>
    %5 = stablehlo.dot_general %3, %4, contracting_dims = [0] x [0]
      : (tensor<4x9xbf16>, tensor<4x3xbf16>) -> tensor<9x3xbf16>
    %6 = stablehlo.add %i, %i : tensor<4xi32>
    %7 = stablehlo.constant dense<1> : tensor<i32>
    %8 = stablehlo.subtract %n, %7 : tensor<i32>
    stablehlo.return %6, %5, %8 : tensor<4xi32>, tensor<9x3xbf16>, tensor<i32>
  }
  return %0#1 : tensor<9x3xbf16>
}

// -----

// What is sent to experts by a one-hot matrix are activations, and its gradient belongs to no lookup.
// CHECK-LABEL: func.func @main
//       CHECK:   stablehlo.dot_general
//       CHECK:   stablehlo.dot_general
//   CHECK-NOT:   stablehlo.gather
//   CHECK-NOT:   stablehlo.scatter
func.func @main(%w: tensor<9x3xf32>, %ids: tensor<4xi32>, %x: tensor<4x3xf32>)
    -> (tensor<9x3xf32>, tensor<4x3xf32>) {
  %iota = stablehlo.iota dim = 1 : tensor<4x9xi32>
  %0 = stablehlo.broadcast_in_dim %ids, dims = [0] : (tensor<4xi32>) -> tensor<4x9xi32>
  %1 = stablehlo.compare EQ, %0, %iota, SIGNED : (tensor<4x9xi32>, tensor<4x9xi32>) -> tensor<4x9xi1>
  %2 = stablehlo.convert %1 : (tensor<4x9xi1>) -> tensor<4x9xf32>
  %3 = stablehlo.dot_general %2, %x, contracting_dims = [0] x [0]
    : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<9x3xf32>
  %4 = stablehlo.multiply %3, %w : tensor<9x3xf32>
  %5 = stablehlo.dot_general %2, %4, contracting_dims = [1] x [0]
    : (tensor<4x9xf32>, tensor<9x3xf32>) -> tensor<4x3xf32>
  return %4, %5 : tensor<9x3xf32>, tensor<4x3xf32>
}

// -----

// A gradient that is widened again is never rounded, so that it stays a sum over tokens.
// CHECK-LABEL: func.func @main
//       CHECK:   "stablehlo.scatter"
//       CHECK:   %[[SUM:.*]] = stablehlo.add {{.*}} : tensor<9x3xf32>
//   CHECK-NOT:   bf16
//       CHECK:   return %{{.*}}, %[[SUM]]
func.func @main(%table: tensor<9x3xf32>, %ids: tensor<4xi32>) -> (tensor<9x3xf32>, tensor<9x3xf32>) {
  %iota = stablehlo.iota dim = 1 : tensor<4x9xi32>
  %0 = stablehlo.broadcast_in_dim %ids, dims = [0] : (tensor<4xi32>) -> tensor<4x9xi32>
  %1 = stablehlo.compare EQ, %0, %iota, SIGNED : (tensor<4x9xi32>, tensor<4x9xi32>) -> tensor<4x9xi1>
  %2 = stablehlo.convert %1 : (tensor<4x9xi1>) -> tensor<4x9xbf16>
  %3 = stablehlo.convert %table : (tensor<9x3xf32>) -> tensor<9x3xbf16>
  %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0]
    : (tensor<4x9xbf16>, tensor<9x3xbf16>) -> tensor<4x3xbf16>
  %5 = stablehlo.dot_general %4, %2, contracting_dims = [0] x [0]
    : (tensor<4x3xbf16>, tensor<4x9xbf16>) -> tensor<3x9xbf16>
  %6 = stablehlo.transpose %5, dims = [1, 0] : (tensor<3x9xbf16>) -> tensor<9x3xbf16>
  %7 = stablehlo.convert %6 : (tensor<9x3xbf16>) -> tensor<9x3xf32>
  return %table, %7 : tensor<9x3xf32>, tensor<9x3xf32>
}
