// RUN: shardc-opt %s --passes=shardc-legalize-chlo | filecheck %s

// Ops without a sharding rule become ops that have one.
// CHECK-LABEL: func.func @tangent
//   CHECK-NOT:   chlo.
//       CHECK:   stablehlo.tan %arg0
func.func @tangent(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = chlo.tan %a : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A legalised op inside a region too.
// CHECK-LABEL: func.func @in_a_branch
//       CHECK:   stablehlo.if
//   CHECK-NOT:   chlo.
//       CHECK:   return
func.func @in_a_branch(%p: tensor<i1>, %a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = chlo.erf_inv %a : tensor<4xf32> -> tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }, {
    stablehlo.return %a : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
