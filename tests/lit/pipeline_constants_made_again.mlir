// RUN: shardc-opt %s --passes=shardc-plan-residency{in-flight=1} | filecheck %s

// Both sums start from one zero, on either side of what is kept: it is made again, so that the way
// back sees that they do, and can split them.
// CHECK-LABEL: func.func public @main
//       CHECK:   constant {{.*}}shardc.recomputed
//       CHECK:   tanh %arg0 {{.*}}shardc.recomputed
//       CHECK:   reduce({{.*}}"body", shardc.stage
//       CHECK:   broadcast_in_dim {{.*}}shardc.recomputed
//       CHECK:   tanh {{.*}}shardc.recomputed
//       CHECK:   reduce({{.*}}shardc.recomputed
module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %zero = stablehlo.constant {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} dense<0.0> : tensor<f32>
    %a = stablehlo.tanh %x {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    %n = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %n, dims = [] {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<f32>) -> tensor<8xf32>
    %c = stablehlo.tanh %b {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    %m = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0] {shardc.direction = "forward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %k = stablehlo.broadcast_in_dim %m, dims = [] {shardc.direction = "backward", shardc.phase = "body", shardc.stage = 0 : i64} : (tensor<f32>) -> tensor<8xf32>
    %d = stablehlo.multiply %k, %c {shardc.direction = "backward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    %e = stablehlo.multiply %a, %d {shardc.direction = "backward", shardc.phase = "body", shardc.stage = 0 : i64} : tensor<8xf32>
    return %e : tensor<8xf32>
  }
}
