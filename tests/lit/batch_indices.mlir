// RUN: shardc-opt %s --passes=shardc-batch-indices,shardc-canonicalize | filecheck %s
// RUN: shardc-opt %s --passes=shardc-batch-indices,shardc-batch-indices,shardc-canonicalize | filecheck %s

// The label of each row: x[arange(4), labels]. An index that could be negative is wrapped.
// CHECK-LABEL: func.func @gather
//  CHECK-NEXT:   %[[LABELS:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [0]
//  CHECK-NEXT:   "stablehlo.gather"(%arg0, %[[LABELS]])
//  CHECK-SAME:     collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1
func.func @gather(%x: tensor<4x9xf32>, %labels: tensor<4xi32>) -> tensor<4xf32> {
  %iota = stablehlo.iota dim = 0 : tensor<4xi32>
  %zero = stablehlo.constant dense<0> : tensor<4xi32>
  %four = stablehlo.constant dense<4> : tensor<4xi32>
  %below = stablehlo.compare LT, %iota, %zero, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
  %more = stablehlo.add %iota, %four : tensor<4xi32>
  %wrapped = stablehlo.select %below, %more, %iota : tensor<4xi1>, tensor<4xi32>
  %0 = stablehlo.broadcast_in_dim %wrapped, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
  %1 = stablehlo.broadcast_in_dim %labels, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %3 = "stablehlo.gather"(%x, %2) <{
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<4x9xf32>, tensor<4x2xi32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Two batch dims of a scatter; the columns stand in another order than the dims.
// CHECK-LABEL: func.func @scatter
//       CHECK:   %[[I:.*]] = stablehlo.reshape %arg1
//       CHECK:   "stablehlo.scatter"(%arg0, %[[I]], %arg2)
//  CHECK-SAME:     inserted_window_dims = [1], input_batching_dims = [0, 2], scatter_indices_batching_dims = [1, 0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2
func.func @scatter(%x: tensor<4x9x3xf32>, %i: tensor<3x4xi32>, %u: tensor<3x4xf32>) -> tensor<4x9x3xf32> {
  %rows = stablehlo.iota dim = 0 : tensor<3x4x1xi32>
  %columns = stablehlo.iota dim = 1 : tensor<3x4x1xi32>
  %0 = stablehlo.reshape %i : (tensor<3x4xi32>) -> tensor<3x4x1xi32>
  %1 = stablehlo.concatenate %rows, %0, %columns, dim = 2
    : (tensor<3x4x1xi32>, tensor<3x4x1xi32>, tensor<3x4x1xi32>) -> tensor<3x4x3xi32>
  %2 = "stablehlo.scatter"(%x, %1, %u) <{
    scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1, 2],
      scatter_dims_to_operand_dims = [2, 1, 0], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %3 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }) : (tensor<4x9x3xf32>, tensor<3x4x3xi32>, tensor<3x4xf32>) -> tensor<4x9x3xf32>
  return %2 : tensor<4x9x3xf32>
}

// Positions in a longer dim, and ones that are shifted, are data like any other.
// CHECK-LABEL: func.func @not_the_batch
//       CHECK:   start_index_map = [0, 1]
//       CHECK:   start_index_map = [0, 1]
func.func @not_the_batch(%x: tensor<5x9xf32>, %y: tensor<4x9xf32>, %labels: tensor<4x1xi32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %iota = stablehlo.iota dim = 0 : tensor<4x1xi32>
  %one = stablehlo.constant dense<1> : tensor<4x1xi32>
  %next = stablehlo.add %iota, %one : tensor<4x1xi32>
  %0 = stablehlo.concatenate %iota, %labels, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %1 = stablehlo.concatenate %next, %labels, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %2 = "stablehlo.gather"(%x, %0) <{
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<5x9xf32>, tensor<4x2xi32>) -> tensor<4xf32>
  %3 = "stablehlo.gather"(%y, %1) <{
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<4x9xf32>, tensor<4x2xi32>) -> tensor<4xf32>
  return %2, %3 : tensor<4xf32>, tensor<4xf32>
}
