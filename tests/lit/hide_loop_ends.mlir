// RUN: shardc-opt %s --passes=shardc-hide-loop-ends | filecheck %s
// RUN: shardc-opt %s --passes=shardc-hide-loop-ends,shardc-hide-loop-ends | filecheck %s

// XLA would take 255, which an unsigned counter adds, for more than nothing: it gets a barrier.
// CHECK-LABEL: func.func @unsigned
//       CHECK:   %[[MORE:.*]] = stablehlo.compare GT
//  CHECK-NEXT:   %[[END:.*]] = stablehlo.optimization_barrier %[[MORE]]
//  CHECK-NEXT:   stablehlo.return %[[END]]
func.func @unsigned(%a: tensor<ui8>, %b: tensor<ui8>) -> tensor<ui8> {
  %c = stablehlo.constant dense<7> : tensor<ui8>
  %zero = stablehlo.constant dense<0> : tensor<ui8>
  %one = stablehlo.constant dense<1> : tensor<ui8>
  %0 = stablehlo.while(%i = %c) : tensor<ui8>
  cond {
    %more = stablehlo.compare GT, %i, %zero, UNSIGNED : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.subtract %i, %one : tensor<ui8>
    stablehlo.return %next : tensor<ui8>
  }
  return %0 : tensor<ui8>
}

// So does a counter that wraps around.
// CHECK-LABEL: func.func @wraps
//       CHECK:   stablehlo.optimization_barrier
func.func @wraps() -> tensor<i8> {
  %zero = stablehlo.constant dense<0> : tensor<i8>
  %one = stablehlo.constant dense<1> : tensor<i8>
  %0 = stablehlo.while(%i = %zero) : tensor<i8>
  cond {
    %more = stablehlo.compare GE, %i, %zero, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i8>
    stablehlo.return %next : tensor<i8>
  }
  return %0 : tensor<i8>
}

// What XLA counts as it is, it may count.
// CHECK-LABEL: func.func @signed
//   CHECK-NOT:   optimization_barrier
func.func @signed() -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<9> : tensor<i32>
  %0 = stablehlo.while(%i = %zero) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  return %0 : tensor<i32>
}
