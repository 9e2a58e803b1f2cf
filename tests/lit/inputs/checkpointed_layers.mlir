// h = tanh(h @ w) @ w for each of four layers in a loop that `jax.checkpoint` has computed again;
// loss = sum(h * h). As it is after normalisation.
module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x8x8xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<16x8xf32>) -> (tensor<4x8x8xf32> {jax.result_info = "result[0]"}, tensor<f32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<4> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x16x8xf32>
    %1:3 = stablehlo.while(%iterArg = %c_2, %iterArg_4 = %arg1, %iterArg_5 = %0) : tensor<i32>, tensor<16x8xf32>, tensor<4x16x8xf32>
    cond {
      %13 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %13 : tensor<i1>
    } do {
      %13 = stablehlo.dynamic_slice %arg0, %iterArg, %c_2, %c_2, sizes = [1, 8, 8] : (tensor<4x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
      %14 = stablehlo.reshape %13 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
      %15 = stablehlo.dot_general %iterArg_4, %14, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %16 = stablehlo.tanh %15 : tensor<16x8xf32>
      %17 = stablehlo.dot_general %16, %14, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %18 = stablehlo.broadcast_in_dim %iterArg_4, dims = [1, 2] : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
      %19 = stablehlo.dynamic_update_slice %iterArg_5, %18, %iterArg, %c_2, %c_2 : (tensor<4x16x8xf32>, tensor<1x16x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x16x8xf32>
      %20 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %20, %17, %19 : tensor<i32>, tensor<16x8xf32>, tensor<4x16x8xf32>
    }
    %2 = stablehlo.multiply %1#1, %1#1 : tensor<16x8xf32>
    %3 = stablehlo.reduce(%2 init: %cst_3) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x8xf32>, tensor<f32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<16x8xf32>
    %5 = stablehlo.multiply %1#1, %4 : tensor<16x8xf32>
    %6 = stablehlo.multiply %4, %1#1 : tensor<16x8xf32>
    %7 = stablehlo.add %6, %5 : tensor<16x8xf32>
    %8 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x8x8xf32>
    %9:3 = stablehlo.while(%iterArg = %c_2, %iterArg_4 = %7, %iterArg_5 = %8) : tensor<i32>, tensor<16x8xf32>, tensor<4x8x8xf32>
    cond {
      %13 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %13 : tensor<i1>
    } do {
      %13 = stablehlo.subtract %c_1, %iterArg : tensor<i32>
      %14 = stablehlo.subtract %13, %c : tensor<i32>
      %15 = stablehlo.dynamic_slice %1#2, %14, %c_2, %c_2, sizes = [1, 16, 8] : (tensor<4x16x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x8xf32>
      %16 = stablehlo.reshape %15 : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
      %17 = stablehlo.dynamic_slice %arg0, %14, %c_2, %c_2, sizes = [1, 8, 8] : (tensor<4x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
      %18 = stablehlo.reshape %17 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
      %19:3 = stablehlo.optimization_barrier %16, %18, %iterArg_4 : tensor<16x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>
      %20 = stablehlo.dot_general %19#0, %19#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %21 = stablehlo.tanh %20 : tensor<16x8xf32>
      %22 = stablehlo.add %4, %21 : tensor<16x8xf32>
      %23 = stablehlo.subtract %4, %21 : tensor<16x8xf32>
      %24 = stablehlo.multiply %22, %23 : tensor<16x8xf32>
      %25 = stablehlo.dot_general %19#2, %21, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
      %26 = stablehlo.transpose %25, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %27 = stablehlo.dot_general %19#2, %19#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %28 = stablehlo.multiply %27, %24 : tensor<16x8xf32>
      %29 = stablehlo.dot_general %28, %19#0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
      %30 = stablehlo.transpose %29, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %31 = stablehlo.add %26, %30 : tensor<8x8xf32>
      %32 = stablehlo.dot_general %28, %19#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %33 = stablehlo.broadcast_in_dim %31, dims = [1, 2] : (tensor<8x8xf32>) -> tensor<1x8x8xf32>
      %34 = stablehlo.dynamic_update_slice %iterArg_5, %33, %14, %c_2, %c_2 : (tensor<4x8x8xf32>, tensor<1x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x8x8xf32>
      %35 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %35, %32, %34 : tensor<i32>, tensor<16x8xf32>, tensor<4x8x8xf32>
    }
    %10 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x8xf32>
    %11 = stablehlo.multiply %10, %9#2 : tensor<4x8x8xf32>
    %12 = stablehlo.subtract %arg0, %11 : tensor<4x8x8xf32>
    return %12, %3 : tensor<4x8x8xf32>, tensor<f32>
  }
}
