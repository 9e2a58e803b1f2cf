// RUN: shardc-opt %s --passes=shardc-share-reshards | filecheck %s
// RUN: shardc-opt %s --passes=shardc-share-reshards,shardc-share-reshards | filecheck %s

// Two products that use an activation have one neighbour, which may lie as is best for both. What
// is added to it later takes it as it is made.
// CHECK-LABEL: func.func @two_products
//  CHECK-NEXT:   %[[H:.*]] = stablehlo.tanh %arg0
//  CHECK-NEXT:   %[[BOTH:.*]] = sdy.sharding_constraint %[[H]] <mesh<[]>, [{?}, {?}]>
//  CHECK-NEXT:   %[[Q:.*]] = stablehlo.dot_general %[[BOTH]], %arg1
//  CHECK-NEXT:   %[[K:.*]] = stablehlo.dot_general %[[BOTH]], %[[Q]]
//  CHECK-NEXT:   stablehlo.add %[[H]], %[[K]]
func.func @two_products(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %h = stablehlo.tanh %x : tensor<8x8xf32>
  %q = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %k = stablehlo.dot_general %h, %q, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = stablehlo.add %h, %k : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// The partial sums that a product leaves are added up once for all that use them, results of the
// function among them.
// CHECK-LABEL: func.func @product
//  CHECK-NEXT:   %[[H:.*]] = stablehlo.dot_general
//  CHECK-NEXT:   %[[ALL:.*]] = sdy.sharding_constraint %[[H]] <mesh<[]>, [{?}, {?}]>
//  CHECK-NEXT:   %[[Y:.*]] = stablehlo.tanh %[[ALL]]
//  CHECK-NEXT:   return %[[ALL]], %[[Y]]
func.func @product(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = stablehlo.tanh %h : tensor<8x8xf32>
  return %h, %y : tensor<8x8xf32>, tensor<8x8xf32>
}

// One op that uses a value twice is one user; ops that are cheap follow their neighbours.
// CHECK-LABEL: func.func @nothing_to_share
//   CHECK-NOT:   sdy.sharding_constraint
//       CHECK:   return
func.func @nothing_to_share(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %h = stablehlo.tanh %x : tensor<8x8xf32>
  %a = stablehlo.negate %h : tensor<8x8xf32>
  %y = stablehlo.add %h, %a : tensor<8x8xf32>
  %z = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}

// A partial sum stays one where something whole is added to it, which one device counts.
// CHECK-LABEL: func.func @residual
//       CHECK:   %[[SUM:.*]] = stablehlo.add %arg0
//  CHECK-NEXT:   %[[ALL:.*]] = sdy.sharding_constraint %[[SUM]] <mesh<[]>, [{?}, {?}]>
//  CHECK-NEXT:   %[[Y:.*]] = stablehlo.tanh %[[ALL]]
//  CHECK-NEXT:   return %[[ALL]], %[[Y]]
func.func @residual(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = stablehlo.add %x, %h : tensor<8x8xf32>
  %y = stablehlo.tanh %s : tensor<8x8xf32>
  return %s, %y : tensor<8x8xf32>, tensor<8x8xf32>
}
