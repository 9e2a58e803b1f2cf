// RUN: shardc-opt %s --passes=shardc-unroll-layers | filecheck %s
// RUN: shardc-opt %s --passes=shardc-unroll-layers,shardc-unroll-layers | filecheck %s
// RUN: shardc-opt %s --passes=shardc-unroll-layers{most=14} | filecheck %s --check-prefix=LONG

// Three layers, each with what the one before made; the loop of two in each of them, too.
// CHECK-LABEL: func.func @stage0_forward
//   CHECK-NOT:   stablehlo.while
// CHECK-COUNT-6: stablehlo.tanh
//   CHECK-NOT:   stablehlo.tanh
//       CHECK:   return

// A loop of an update, which runs once per step, stays.
// CHECK-LABEL: func.func @stage0_update
//       CHECK:   stablehlo.while

// 3 * (2 * 2 + 1) = 15 ops are more than 14.
// LONG-LABEL: func.func @stage0_forward
//       LONG:   stablehlo.while
func.func @stage0_forward(%x: tensor<4xf32> {shardc.value = "arg0"})
    -> (tensor<4xf32> {shardc.per_microbatch, shardc.value = "v0"})
    attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1:2 = stablehlo.while(%j = %zero, %g = %h) : tensor<i32>, tensor<4xf32>
    cond {
      %2 = stablehlo.compare LT, %j, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.tanh %g : tensor<4xf32>
      %3 = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %3, %2 : tensor<i32>, tensor<4xf32>
    }
    %4 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %4, %1#1 : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
func.func @stage0_update(%x: tensor<4xf32> {shardc.value = "arg0"})
    -> (tensor<4xf32> {shardc.value = "v1"})
    attributes {shardc.kind = "update", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.tanh %h : tensor<4xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %1 : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
