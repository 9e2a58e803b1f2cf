// y = (x @ w + b) @ v; loss = sum(y * y), split into two microbatches.
module attributes {shardc.num_microbatches = 2 : i64} {
  func.func public @main(%b: tensor<8xf32> {tf.aliasing_output = 0 : i32},
      %w: tensor<8x8xf32> {tf.aliasing_output = 1 : i32},
      %v: tensor<8x8xf32> {tf.aliasing_output = 2 : i32},
      %x: tensor<2x4x8xf32> {shardc.batch_dim = 0 : i64})
      -> (tensor<8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
    %i = stablehlo.custom_call @shardc.microbatch_index() : () -> tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %s = stablehlo.dynamic_slice %x, %i, %z, %z, sizes = [1, 4, 8] : (tensor<2x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %xb = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %h = stablehlo.dot_general %xb, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %bb = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
    %hb = stablehlo.add %h, %bb : tensor<4x8xf32>
    %y = stablehlo.dot_general %hb, %v, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %q = stablehlo.multiply %y, %y : tensor<4x8xf32>
    %f = stablehlo.constant dense<0.0> : tensor<f32>
    %l = stablehlo.reduce(%q init: %f) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>
    %loss = stablehlo.custom_call @shardc.accumulate(%l) {shardc.kind = "sum"} : (tensor<f32>) -> tensor<f32>
    %dy = stablehlo.add %y, %y : tensor<4x8xf32>
    %dv = stablehlo.dot_general %hb, %dy, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %dh = stablehlo.dot_general %dy, %v, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %db = stablehlo.reduce(%dh init: %f) applies stablehlo.add across dimensions = [0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
    %dw = stablehlo.dot_general %xb, %dh, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %gb = stablehlo.custom_call @shardc.accumulate(%db) {shardc.kind = "sum"} : (tensor<8xf32>) -> tensor<8xf32>
    %gw = stablehlo.custom_call @shardc.accumulate(%dw) {shardc.kind = "sum"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %gv = stablehlo.custom_call @shardc.accumulate(%dv) {shardc.kind = "sum"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %nb = stablehlo.subtract %b, %gb {shardc.phase = "after"} : tensor<8xf32>
    %nw = stablehlo.subtract %w, %gw {shardc.phase = "after"} : tensor<8x8xf32>
    %nv = stablehlo.subtract %v, %gv {shardc.phase = "after"} : tensor<8x8xf32>
    return %nb, %nw, %nv, %loss : tensor<8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
  }
}