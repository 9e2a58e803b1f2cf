// y = tanh(x @ w) @ w2 @ w; loss = sum(y * y), split into two microbatches. The gradients are
// divided by their global norm and by the number of steps; `w` is used first and last.
module attributes {shardc.num_microbatches = 2 : i64} {
  func.func public @main(
      %w: tensor<8x8xf32> {shardc.name = "w", tf.aliasing_output = 0 : i32},
      %w2: tensor<8x8xf32> {shardc.name = "w2", tf.aliasing_output = 1 : i32},
      %count: tensor<f32> {shardc.name = "count", tf.aliasing_output = 2 : i32},
      %x: tensor<2x4x8xf32> {shardc.name = "x", shardc.batch_dim = 0 : i64})
      -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) {
    // Forward.
    %i = stablehlo.custom_call @shardc.microbatch_index() {shardc.phase = "body"} : () -> tensor<i32>
    %zero = stablehlo.constant {shardc.phase = "body"} dense<0> : tensor<i32>
    %part = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 4, 8] {shardc.phase = "body"}
      : (tensor<2x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %xb = stablehlo.reshape %part {shardc.phase = "body"} : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %h = stablehlo.dot_general %xb, %w, contracting_dims = [1] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %t = stablehlo.tanh %h {shardc.phase = "body"} : tensor<4x8xf32>
    %y0 = stablehlo.dot_general %t, %w2, contracting_dims = [1] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %y = stablehlo.dot_general %y0, %w, contracting_dims = [1] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %sq = stablehlo.multiply %y, %y {shardc.phase = "body"} : tensor<4x8xf32>
    %f = stablehlo.constant {shardc.phase = "body"} dense<0.0> : tensor<f32>
    %l = stablehlo.reduce(%sq init: %f) applies stablehlo.add across dimensions = [0, 1]
      {shardc.phase = "body"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>
    %loss = stablehlo.custom_call @shardc.accumulate(%l)
      {shardc.kind = "sum", shardc.phase = "body"} : (tensor<f32>) -> tensor<f32>

    // Backward.
    %dy = stablehlo.add %y, %y {shardc.phase = "body"} : tensor<4x8xf32>
    %dw_b = stablehlo.dot_general %y0, %dy, contracting_dims = [0] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %dy0 = stablehlo.dot_general %dy, %w, contracting_dims = [1] x [1] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %dw2 = stablehlo.dot_general %t, %dy0, contracting_dims = [0] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %dt = stablehlo.dot_general %dy0, %w2, contracting_dims = [1] x [1] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %tt = stablehlo.multiply %t, %t {shardc.phase = "body"} : tensor<4x8xf32>
    %dtt = stablehlo.multiply %dt, %tt {shardc.phase = "body"} : tensor<4x8xf32>
    %dh = stablehlo.subtract %dt, %dtt {shardc.phase = "body"} : tensor<4x8xf32>
    %dw_a = stablehlo.dot_general %xb, %dh, contracting_dims = [0] x [0] {shardc.phase = "body"}
      : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %dw = stablehlo.add %dw_b, %dw_a {shardc.phase = "body"} : tensor<8x8xf32>
    %g = stablehlo.custom_call @shardc.accumulate(%dw)
      {shardc.kind = "sum", shardc.phase = "body"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %g2 = stablehlo.custom_call @shardc.accumulate(%dw2)
      {shardc.kind = "sum", shardc.phase = "body"} : (tensor<8x8xf32>) -> tensor<8x8xf32>

    // Update.
    %one = stablehlo.constant {shardc.phase = "after"} dense<1.0> : tensor<f32>
    %next = stablehlo.add %count, %one {shardc.phase = "after"} : tensor<f32>
    %f2 = stablehlo.constant {shardc.phase = "after"} dense<0.0> : tensor<f32>
    %gg = stablehlo.multiply %g, %g {shardc.phase = "after"} : tensor<8x8xf32>
    %n = stablehlo.reduce(%gg init: %f2) applies stablehlo.add across dimensions = [0, 1]
      {shardc.phase = "after"} : (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
    %gg2 = stablehlo.multiply %g2, %g2 {shardc.phase = "after"} : tensor<8x8xf32>
    %n2 = stablehlo.reduce(%gg2 init: %f2) applies stablehlo.add across dimensions = [0, 1]
      {shardc.phase = "after"} : (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
    %sum = stablehlo.add %n, %n2 {shardc.phase = "after"} : tensor<f32>
    %norm = stablehlo.sqrt %sum {shardc.phase = "after"} : tensor<f32>
    %scale = stablehlo.multiply %norm, %next {shardc.phase = "after"} : tensor<f32>
    %scales = stablehlo.broadcast_in_dim %scale, dims = [] {shardc.phase = "after"}
      : (tensor<f32>) -> tensor<8x8xf32>
    %u = stablehlo.divide %g, %scales {shardc.phase = "after"} : tensor<8x8xf32>
    %u2 = stablehlo.divide %g2, %scales {shardc.phase = "after"} : tensor<8x8xf32>
    %new_w = stablehlo.subtract %w, %u {shardc.phase = "after"} : tensor<8x8xf32>
    %new_w2 = stablehlo.subtract %w2, %u2 {shardc.phase = "after"} : tensor<8x8xf32>
    return %new_w, %new_w2, %next, %loss : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>
  }
}
