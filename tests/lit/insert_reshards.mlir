// RUN: shardc-opt %s --passes=shardc-insert-reshards | filecheck %s

sdy.mesh @mesh = <["x"=2, "y"=2]>

// The operand that lies as the op wants it stays; the other gets one reshard.
// CHECK-LABEL: func.func @one_of_two_operands_agrees
//  CHECK-NEXT:   %[[RHS:.*]] = sdy.reshard %arg1 <@mesh, [{"x"}, {}]>
//  CHECK-NEXT:   stablehlo.add %arg0, %[[RHS]]
//   CHECK-NOT:   shardc.in_shardings
func.func @one_of_two_operands_agrees(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %b: tensor<8x8xf32>)
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %0 = stablehlo.add %a, %b {
    shardc.in_shardings = [#sdy.sharding<@mesh, [{"x"}, {}]>, #sdy.sharding<@mesh, [{"x"}, {}]>],
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// Two ops that want one value in the same sharding share the reshard.
// CHECK-LABEL: func.func @users_share
//       CHECK:   sdy.reshard
//   CHECK-NOT:   sdy.reshard
//       CHECK:   return
func.func @users_share(%a: tensor<8xf32>)
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>}) {
  %0 = stablehlo.negate %a {shardc.in_shardings = [#sdy.sharding<@mesh, [{"y"}]>],
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} : tensor<8xf32>
  %1 = stablehlo.add %0, %a {
    shardc.in_shardings = [#sdy.sharding<@mesh, [{"y"}]>, #sdy.sharding<@mesh, [{"y"}]>],
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} : tensor<8xf32>
  return %1 : tensor<8xf32>
}

// A result leaves the function as its attribute says: here a partial sum becomes whole.
// CHECK-LABEL: func.func @result
//       CHECK:   %[[SUM:.*]] = sdy.reshard %arg0 <@mesh, [{}]>
//  CHECK-NEXT:   return %[[SUM]]
func.func @result(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], unreduced={"x"}>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  return %a : tensor<8xf32>
}

// What a branch hands on lies as the result of its op, which without a sharding is whole.
// CHECK-LABEL: func.func @branch
//       CHECK:   %[[WHOLE:.*]] = sdy.reshard %arg1 <@mesh, [{}]>
//       CHECK:   "stablehlo.if"
//       CHECK:   stablehlo.add %[[WHOLE]], %[[WHOLE]]
//       CHECK:   stablehlo.return %[[WHOLE]]
func.func @branch(%p: tensor<i1>,
    %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.add %a, %a {
      shardc.in_shardings = [#sdy.sharding<@mesh, [{}]>, #sdy.sharding<@mesh, [{}]>],
      sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>} : tensor<8xf32>
    stablehlo.return %1 : tensor<8xf32>
  }, {
    stablehlo.return %a : tensor<8xf32>
  }) {shardc.in_shardings = [#sdy.sharding<@mesh, []>]} : (tensor<i1>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// A loop carries a value in one sharding. A value from outside is resharded before the loop, one
// that is made inside it in each round.
// CHECK-LABEL: func.func @loop
//       CHECK:   %[[OUTSIDE:.*]] = sdy.reshard %arg0 <@mesh, [{"y"}]>
//       CHECK:   stablehlo.while
//       CHECK:   do {
//       CHECK:     %[[SUM:.*]] = stablehlo.add %{{.*}}, %[[OUTSIDE]]
//       CHECK:     %[[NEXT:.*]] = sdy.reshard %[[SUM]] <@mesh, [{"x"}]>
//       CHECK:     stablehlo.return %[[NEXT]]
func.func @loop(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
    %go: tensor<i1>) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  %0 = stablehlo.while(%v = %a) : tensor<8xf32> attributes {
      shardc.in_shardings = [#sdy.sharding<@mesh, [{"x"}]>],
      sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}
  cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %1 = stablehlo.add %v, %a {
      shardc.in_shardings = [#sdy.sharding<@mesh, [{"y"}]>, #sdy.sharding<@mesh, [{"y"}]>],
      sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} : tensor<8xf32>
    stablehlo.return %1 : tensor<8xf32>
  }
  return %0 : tensor<8xf32>
}
