// RUN: shardc-opt %s --passes=shardc-simplify-loops | filecheck %s
// RUN: shardc-opt %s --passes=shardc-simplify-loops,shardc-simplify-loops | filecheck %s

// What each round hands on as it got it is used from outside, after the loop too; so is a value that
// each round replaces by what the loop started from.
// CHECK-LABEL: func.func @carried_along
//       CHECK:   %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %arg0, %[[V:.*]] = %arg2) : tensor<i32>, tensor<8xf32>
//       CHECK:     stablehlo.compare LT, %[[I]], %arg1
//       CHECK:     %[[NEXT:.*]] = stablehlo.add %[[I]], %arg4
//       CHECK:     %[[SUM:.*]] = stablehlo.add %[[V]], %arg3
//       CHECK:     stablehlo.return %[[NEXT]], %[[SUM]] : tensor<i32>, tensor<8xf32>
//       CHECK:   return %[[LOOP]]#1, %arg3
func.func @carried_along(%i: tensor<i32>, %n: tensor<i32>, %v: tensor<8xf32>, %w: tensor<8xf32>,
    %one: tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0:5 = stablehlo.while(%a = %i, %b = %n, %c = %v, %d = %w, %e = %one)
    : tensor<i32>, tensor<i32>, tensor<8xf32>, tensor<8xf32>, tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %a, %e : tensor<i32>
    %2 = stablehlo.add %c, %d : tensor<8xf32>
    stablehlo.return %1, %b, %2, %d, %one
      : tensor<i32>, tensor<i32>, tensor<8xf32>, tensor<8xf32>, tensor<i32>
  }
  return %0#2, %0#3 : tensor<8xf32>, tensor<8xf32>
}

// Values that change places are not the same in each round.
// CHECK-LABEL: func.func @swapped
//       CHECK:   stablehlo.while(%{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
func.func @swapped(%a: tensor<f32>, %b: tensor<f32>, %go: tensor<i1>) -> tensor<f32> {
  %0:3 = stablehlo.while(%x = %a, %y = %b, %z = %go) : tensor<f32>, tensor<f32>, tensor<i1>
  cond {
    stablehlo.return %z : tensor<i1>
  } do {
    %1 = stablehlo.not %z : tensor<i1>
    stablehlo.return %y, %x, %1 : tensor<f32>, tensor<f32>, tensor<i1>
  }
  return %0#0 : tensor<f32>
}

// An inner loop first, so that the outer one sees what it no longer changes.
// CHECK-LABEL: func.func @nested
//       CHECK:   %[[OUTER:.*]] = stablehlo.while(%[[I:.*]] = %arg0) : tensor<i32>
//       CHECK:     stablehlo.while(%{{.*}} = %[[I]]) : tensor<i32>
//       CHECK:   return %arg1, %[[OUTER]]
func.func @nested(%i: tensor<i32>, %w: tensor<8xf32>, %go: tensor<i1>)
    -> (tensor<8xf32>, tensor<i32>) {
  %0:2 = stablehlo.while(%a = %i, %b = %w) : tensor<i32>, tensor<8xf32>
  cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %1:2 = stablehlo.while(%c = %a, %d = %b) : tensor<i32>, tensor<8xf32>
    cond {
      stablehlo.return %go : tensor<i1>
    } do {
      %2 = stablehlo.negate %c : tensor<i32>
      stablehlo.return %2, %d : tensor<i32>, tensor<8xf32>
    }
    stablehlo.return %1#0, %1#1 : tensor<i32>, tensor<8xf32>
  }
  return %0#1, %0#0 : tensor<8xf32>, tensor<i32>
}

// What is carried for nobody goes, and so does what only that is for: the second loop keeps what its
// end and its result depend on, and the first loop what the second one starts from.
// CHECK-LABEL: func.func @for_nobody
//       CHECK:   %[[FIRST:.*]] = stablehlo.while(%{{.*}} = %arg1) : tensor<f32>
//   CHECK-NOT:     stablehlo.exponential
//       CHECK:   %[[SECOND:.*]]:2 = stablehlo.while(%{{.*}} = %arg0, %{{.*}} = %[[FIRST]]) : tensor<i32>, tensor<f32>
//   CHECK-NOT:     stablehlo.exponential
//       CHECK:   return %[[SECOND]]#1
func.func @for_nobody(%i: tensor<i32>, %a: tensor<f32>, %b: tensor<f32>, %go: tensor<i1>)
    -> tensor<f32> {
  %0:2 = stablehlo.while(%x = %a, %y = %b) : tensor<f32>, tensor<f32>
  cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %1 = stablehlo.negate %x : tensor<f32>
    %2 = stablehlo.exponential %y : tensor<f32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<f32>
  }
  %3:3 = stablehlo.while(%n = %i, %x = %0#0, %y = %0#1) : tensor<i32>, tensor<f32>, tensor<f32>
  cond {
    %4 = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %4 : tensor<i1>
  } do {
    %4 = stablehlo.negate %n : tensor<i32>
    %5 = stablehlo.add %x, %x : tensor<f32>
    %6 = stablehlo.exponential %y : tensor<f32>
    stablehlo.return %4, %5, %6 : tensor<i32>, tensor<f32>, tensor<f32>
  }
  return %3#1 : tensor<f32>
}

// A loop with shardings of its own, one per value, stays as it is.
sdy.mesh @mesh = <["x"=2]>
// CHECK-LABEL: func.func @sharded
//       CHECK:   stablehlo.while(%{{.*}} = %arg0, %{{.*}} = %arg1)
func.func @sharded(%a: tensor<8xf32>, %b: tensor<8xf32>, %go: tensor<i1>) -> tensor<8xf32> {
  %0:2 = stablehlo.while(%x = %a, %y = %b) : tensor<8xf32>, tensor<8xf32>
    attributes {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>, <@mesh, [{"x"}]>]>}
  cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %1 = stablehlo.add %x, %y : tensor<8xf32>
    stablehlo.return %1, %y : tensor<8xf32>, tensor<8xf32>
  }
  return %0#0 : tensor<8xf32>
}

// A barrier hands on only what somebody uses, so that the loop need not carry the rest.
// CHECK-LABEL: func.func @behind_a_barrier
//       CHECK:   stablehlo.while(%[[V:.*]] = %arg1, %[[GO:.*]] = %arg2) : tensor<8xf32>, tensor<i1>
//       CHECK:     %[[KEPT:.*]] = stablehlo.optimization_barrier %[[V]] : tensor<8xf32>
//       CHECK:     stablehlo.add %[[KEPT]], %[[KEPT]]
func.func @behind_a_barrier(%u: tensor<8xf32>, %v: tensor<8xf32>, %go: tensor<i1>) -> tensor<8xf32> {
  %0:3 = stablehlo.while(%a = %u, %b = %v, %c = %go) : tensor<8xf32>, tensor<8xf32>, tensor<i1>
  cond {
    stablehlo.return %c : tensor<i1>
  } do {
    %1:2 = stablehlo.optimization_barrier %a, %b : tensor<8xf32>, tensor<8xf32>
    %2 = stablehlo.add %1#1, %1#1 : tensor<8xf32>
    %3 = stablehlo.multiply %1#0, %2 : tensor<8xf32>
    %4 = stablehlo.not %c : tensor<i1>
    stablehlo.return %3, %2, %4 : tensor<8xf32>, tensor<8xf32>, tensor<i1>
  }
  return %0#1 : tensor<8xf32>
}
