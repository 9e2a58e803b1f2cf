// Eight calls of @layer, two of them in @pair, which is called twice.
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>) {
  %0:4 = func.call @layer(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  %1:4 = func.call @layer(%0#0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  %2:4 = func.call @layer(%1#0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  %3:4 = func.call @layer(%2#0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  %4 = func.call @pair(%3#0) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = func.call @pair(%4) : (tensor<4xf32>) -> tensor<4xf32>
  return %5, %0#1, %0#2 : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}
func.func private @pair(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0:4 = func.call @layer(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  %1:4 = func.call @layer(%0#0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>)
  return %1#0 : tensor<4xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>) {
  %0 = func.call @bend(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %x : tensor<4xf32>
  %2 = stablehlo.multiply %1, %x : tensor<4xf32>
  %3 = stablehlo.negate %2 : tensor<4xf32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  return %2, %x, %one, %3 : tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<4xf32>
}
func.func private @bend(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
