module @jit_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<256x64xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<64xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<64x4x16xf32> {tf.aliasing_output = 2 : i32}, %arg3: tensor<64xf32> {tf.aliasing_output = 3 : i32}, %arg4: tensor<64xf32> {tf.aliasing_output = 4 : i32}, %arg5: tensor<64xf32> {tf.aliasing_output = 5 : i32}, %arg6: tensor<64xf32> {tf.aliasing_output = 6 : i32}, %arg7: tensor<4x16x64xf32> {tf.aliasing_output = 7 : i32}, %arg8: tensor<64x4x16xf32> {tf.aliasing_output = 8 : i32}, %arg9: tensor<64x256xf32> {tf.aliasing_output = 9 : i32}, %arg10: tensor<256xf32> {tf.aliasing_output = 10 : i32}, %arg11: tensor<64x4x16xf32> {tf.aliasing_output = 11 : i32}, %arg12: tensor<256x64xf32> {tf.aliasing_output = 12 : i32}, %arg13: tensor<64xf32> {tf.aliasing_output = 13 : i32}, %arg14: tensor<64x4x16xf32> {tf.aliasing_output = 14 : i32}, %arg15: tensor<64xf32> {tf.aliasing_output = 15 : i32}, %arg16: tensor<64xf32> {tf.aliasing_output = 16 : i32}, %arg17: tensor<64xf32> {tf.aliasing_output = 17 : i32}, %arg18: tensor<64xf32> {tf.aliasing_output = 18 : i32}, %arg19: tensor<4x16x64xf32> {tf.aliasing_output = 19 : i32}, %arg20: tensor<64x4x16xf32> {tf.aliasing_output = 20 : i32}, %arg21: tensor<64x256xf32> {tf.aliasing_output = 21 : i32}, %arg22: tensor<256xf32> {tf.aliasing_output = 22 : i32}, %arg23: tensor<64x4x16xf32> {tf.aliasing_output = 23 : i32}, %arg24: tensor<256x64xf32> {tf.aliasing_output = 24 : i32}, %arg25: tensor<64xf32> {tf.aliasing_output = 25 : i32}, %arg26: tensor<64x4x16xf32> {tf.aliasing_output = 26 : i32}, %arg27: tensor<64xf32> {tf.aliasing_output = 27 : i32}, %arg28: tensor<64xf32> {tf.aliasing_output = 28 : i32}, %arg29: tensor<64xf32> {tf.aliasing_output = 29 : i32}, %arg30: tensor<64xf32> {tf.aliasing_output = 30 : i32}, %arg31: tensor<4x16x64xf32> {tf.aliasing_output = 31 : i32}, %arg32: tensor<64x4x16xf32> {tf.aliasing_output = 32 : i32}, %arg33: tensor<64x256xf32> {tf.aliasing_output = 33 : i32}, %arg34: tensor<256xf32> {tf.aliasing_output = 34 : i32}, %arg35: tensor<64x4x16xf32> {tf.aliasing_output = 35 : i32}, %arg36: tensor<256x64xf32> {tf.aliasing_output = 36 : i32}, %arg37: tensor<64xf32> {tf.aliasing_output = 37 : i32}, %arg38: tensor<64x4x16xf32> {tf.aliasing_output = 38 : i32}, %arg39: tensor<64xf32> {tf.aliasing_output = 39 : i32}, %arg40: tensor<64xf32> {tf.aliasing_output = 40 : i32}, %arg41: tensor<64xf32> {tf.aliasing_output = 41 : i32}, %arg42: tensor<64xf32> {tf.aliasing_output = 42 : i32}, %arg43: tensor<4x16x64xf32> {tf.aliasing_output = 43 : i32}, %arg44: tensor<64x4x16xf32> {tf.aliasing_output = 44 : i32}, %arg45: tensor<64x256xf32> {tf.aliasing_output = 45 : i32}, %arg46: tensor<256xf32> {tf.aliasing_output = 46 : i32}, %arg47: tensor<64x4x16xf32> {tf.aliasing_output = 47 : i32}, %arg48: tensor<128x64xf32> {tf.aliasing_output = 48 : i32}, %arg49: tensor<64xf32> {tf.aliasing_output = 49 : i32}, %arg50: tensor<64xf32> {tf.aliasing_output = 50 : i32}, %arg51: tensor<32x64xf32> {tf.aliasing_output = 51 : i32}, %arg52: tensor<256x64xf32> {tf.aliasing_output = 52 : i32}, %arg53: tensor<64xf32> {tf.aliasing_output = 53 : i32}, %arg54: tensor<64x4x16xf32> {tf.aliasing_output = 54 : i32}, %arg55: tensor<64xf32> {tf.aliasing_output = 55 : i32}, %arg56: tensor<64xf32> {tf.aliasing_output = 56 : i32}, %arg57: tensor<64xf32> {tf.aliasing_output = 57 : i32}, %arg58: tensor<64xf32> {tf.aliasing_output = 58 : i32}, %arg59: tensor<4x16x64xf32> {tf.aliasing_output = 59 : i32}, %arg60: tensor<64x4x16xf32> {tf.aliasing_output = 60 : i32}, %arg61: tensor<64x256xf32> {tf.aliasing_output = 61 : i32}, %arg62: tensor<256xf32> {tf.aliasing_output = 62 : i32}, %arg63: tensor<64x4x16xf32> {tf.aliasing_output = 63 : i32}, %arg64: tensor<256x64xf32> {tf.aliasing_output = 64 : i32}, %arg65: tensor<64xf32> {tf.aliasing_output = 65 : i32}, %arg66: tensor<64x4x16xf32> {tf.aliasing_output = 66 : i32}, %arg67: tensor<64xf32> {tf.aliasing_output = 67 : i32}, %arg68: tensor<64xf32> {tf.aliasing_output = 68 : i32}, %arg69: tensor<64xf32> {tf.aliasing_output = 69 : i32}, %arg70: tensor<64xf32> {tf.aliasing_output = 70 : i32}, %arg71: tensor<4x16x64xf32> {tf.aliasing_output = 71 : i32}, %arg72: tensor<64x4x16xf32> {tf.aliasing_output = 72 : i32}, %arg73: tensor<64x256xf32> {tf.aliasing_output = 73 : i32}, %arg74: tensor<256xf32> {tf.aliasing_output = 74 : i32}, %arg75: tensor<64x4x16xf32> {tf.aliasing_output = 75 : i32}, %arg76: tensor<256x64xf32> {tf.aliasing_output = 76 : i32}, %arg77: tensor<64xf32> {tf.aliasing_output = 77 : i32}, %arg78: tensor<64x4x16xf32> {tf.aliasing_output = 78 : i32}, %arg79: tensor<64xf32> {tf.aliasing_output = 79 : i32}, %arg80: tensor<64xf32> {tf.aliasing_output = 80 : i32}, %arg81: tensor<64xf32> {tf.aliasing_output = 81 : i32}, %arg82: tensor<64xf32> {tf.aliasing_output = 82 : i32}, %arg83: tensor<4x16x64xf32> {tf.aliasing_output = 83 : i32}, %arg84: tensor<64x4x16xf32> {tf.aliasing_output = 84 : i32}, %arg85: tensor<64x256xf32> {tf.aliasing_output = 85 : i32}, %arg86: tensor<256xf32> {tf.aliasing_output = 86 : i32}, %arg87: tensor<64x4x16xf32> {tf.aliasing_output = 87 : i32}, %arg88: tensor<256x64xf32> {tf.aliasing_output = 88 : i32}, %arg89: tensor<64xf32> {tf.aliasing_output = 89 : i32}, %arg90: tensor<64x4x16xf32> {tf.aliasing_output = 90 : i32}, %arg91: tensor<64xf32> {tf.aliasing_output = 91 : i32}, %arg92: tensor<64xf32> {tf.aliasing_output = 92 : i32}, %arg93: tensor<64xf32> {tf.aliasing_output = 93 : i32}, %arg94: tensor<64xf32> {tf.aliasing_output = 94 : i32}, %arg95: tensor<4x16x64xf32> {tf.aliasing_output = 95 : i32}, %arg96: tensor<64x4x16xf32> {tf.aliasing_output = 96 : i32}, %arg97: tensor<64x256xf32> {tf.aliasing_output = 97 : i32}, %arg98: tensor<256xf32> {tf.aliasing_output = 98 : i32}, %arg99: tensor<64x4x16xf32> {tf.aliasing_output = 99 : i32}, %arg100: tensor<128x64xf32> {tf.aliasing_output = 100 : i32}, %arg101: tensor<64xf32> {tf.aliasing_output = 101 : i32}, %arg102: tensor<64xf32> {tf.aliasing_output = 102 : i32}, %arg103: tensor<32x64xf32> {tf.aliasing_output = 103 : i32}, %arg104: tensor<16x32xi32>, %arg105: tensor<16x32xi32>) -> (tensor<256x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][0]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][1]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][2]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['optimizer'][0].trace['blocks'][3]['value']"}, tensor<128x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['embedding']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['norm']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['norm']['scale']"}, tensor<32x64xf32> {jax.result_info = "result[0]['optimizer'][0].trace['positions']"}, tensor<256x64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][0]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['params']['blocks'][0]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][0]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['params']['blocks'][0]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['params']['blocks'][0]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][0]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][1]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['params']['blocks'][1]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][1]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['params']['blocks'][1]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['params']['blocks'][1]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][1]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][2]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['params']['blocks'][2]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][2]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['params']['blocks'][2]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['params']['blocks'][2]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][2]['value']"}, tensor<256x64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['down']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['down_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][3]['key']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['norm1']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['norm1']['scale']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['norm2']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['norm2']['scale']"}, tensor<4x16x64xf32> {jax.result_info = "result[0]['params']['blocks'][3]['out']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][3]['query']"}, tensor<64x256xf32> {jax.result_info = "result[0]['params']['blocks'][3]['up']"}, tensor<256xf32> {jax.result_info = "result[0]['params']['blocks'][3]['up_bias']"}, tensor<64x4x16xf32> {jax.result_info = "result[0]['params']['blocks'][3]['value']"}, tensor<128x64xf32> {jax.result_info = "result[0]['params']['embedding']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['norm']['bias']"}, tensor<64xf32> {jax.result_info = "result[0]['params']['norm']['scale']"}, tensor<32x64xf32> {jax.result_info = "result[0]['params']['positions']"}, tensor<f32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<16x32xi32>
    %1 = stablehlo.compare LT, %arg105, %0, SIGNED : (tensor<16x32xi32>, tensor<16x32xi32>) -> tensor<16x32xi1>
    %c_0 = stablehlo.constant dense<128> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<16x32xi32>
    %3 = stablehlo.add %arg105, %2 : tensor<16x32xi32>
    %4 = stablehlo.select %1, %3, %arg105 : tensor<16x32xi1>, tensor<16x32xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<16x32xi32>) -> tensor<16x32x1xi32>
    %6 = "stablehlo.gather"(%arg100, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<128x64xf32>, tensor<16x32x1xi32>) -> tensor<16x32x64xf32>
    %7 = stablehlo.broadcast_in_dim %arg103, dims = [1, 2] : (tensor<32x64xf32>) -> tensor<1x32x64xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<1x32x64xf32>) -> tensor<16x32x64xf32>
    %9 = stablehlo.add %6, %8 : tensor<16x32x64xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%9 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_1 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %13 = stablehlo.divide %11, %12 : tensor<16x32x1xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %14:4 = call @_var(%9, %c_2) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %15 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %16 = stablehlo.subtract %9, %15 : tensor<16x32x64xf32>
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %18 = stablehlo.add %14#0, %17 : tensor<16x32x1xf32>
    %19 = stablehlo.rsqrt %18 : tensor<16x32x1xf32>
    %20 = stablehlo.divide %19, %18 : tensor<16x32x1xf32>
    %cst_4 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %22 = stablehlo.multiply %21, %20 : tensor<16x32x1xf32>
    %23 = stablehlo.broadcast_in_dim %19, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %24 = stablehlo.multiply %16, %23 : tensor<16x32x64xf32>
    %25 = stablehlo.broadcast_in_dim %arg56, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %27 = stablehlo.multiply %24, %26 : tensor<16x32x64xf32>
    %28 = stablehlo.broadcast_in_dim %arg55, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %30 = stablehlo.add %27, %29 : tensor<16x32x64xf32>
    %31 = stablehlo.dot_general %30, %arg60, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %32 = stablehlo.dot_general %30, %arg54, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %33 = stablehlo.dot_general %30, %arg63, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %34 = stablehlo.dot_general %31, %32, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %cst_5 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %35 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %36 = stablehlo.divide %34, %35 : tensor<16x4x32x32xf32>
    %c_6 = stablehlo.constant dense<true> : tensor<i1>
    %37 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i1>) -> tensor<32x32xi1>
    %38 = call @tril(%37) : (tensor<32x32xi1>) -> tensor<32x32xi1>
    %cst_7 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %39:2 = call @_where_0(%38, %36, %cst_7) : (tensor<32x32xi1>, tensor<16x4x32x32xf32>, tensor<f32>) -> (tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>)
    %cst_8 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %40 = stablehlo.reduce(%39#0 init: %cst_8) applies stablehlo.maximum across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %cst_9 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %41 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<16x4x32xf32>
    %42 = stablehlo.maximum %41, %40 : tensor<16x4x32xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %45 = stablehlo.subtract %39#0, %44 : tensor<16x4x32x32xf32>
    %46 = stablehlo.exponential %45 : tensor<16x4x32x32xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.reduce(%46 init: %cst_10) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %48 = stablehlo.broadcast_in_dim %47, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %49 = stablehlo.broadcast_in_dim %48, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %50 = stablehlo.divide %46, %49 : tensor<16x4x32x32xf32>
    %51 = stablehlo.multiply %48, %48 : tensor<16x4x32x1xf32>
    %cst_11 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %52 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<16x4x32x1xf32>
    %53 = stablehlo.divide %52, %51 : tensor<16x4x32x1xf32>
    %54 = stablehlo.dot_general %33, %50, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %55 = stablehlo.transpose %54, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %56 = stablehlo.dot_general %55, %arg59, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<4x16x64xf32>) -> tensor<16x32x64xf32>
    %57 = stablehlo.add %9, %56 : tensor<16x32x64xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %58 = stablehlo.reduce(%57 init: %cst_12) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %59 = stablehlo.broadcast_in_dim %58, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_13 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %60 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %61 = stablehlo.divide %59, %60 : tensor<16x32x1xf32>
    %c_14 = stablehlo.constant dense<0> : tensor<i32>
    %62:4 = call @_var(%57, %c_14) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %63 = stablehlo.broadcast_in_dim %61, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %64 = stablehlo.subtract %57, %63 : tensor<16x32x64xf32>
    %cst_15 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %65 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %66 = stablehlo.add %62#0, %65 : tensor<16x32x1xf32>
    %67 = stablehlo.rsqrt %66 : tensor<16x32x1xf32>
    %68 = stablehlo.divide %67, %66 : tensor<16x32x1xf32>
    %cst_16 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %70 = stablehlo.multiply %69, %68 : tensor<16x32x1xf32>
    %71 = stablehlo.broadcast_in_dim %67, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %72 = stablehlo.multiply %64, %71 : tensor<16x32x64xf32>
    %73 = stablehlo.broadcast_in_dim %arg58, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %74 = stablehlo.broadcast_in_dim %73, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %75 = stablehlo.multiply %72, %74 : tensor<16x32x64xf32>
    %76 = stablehlo.broadcast_in_dim %arg57, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %77 = stablehlo.broadcast_in_dim %76, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %78 = stablehlo.add %75, %77 : tensor<16x32x64xf32>
    %79 = stablehlo.dot_general %78, %arg61, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x256xf32>) -> tensor<16x32x256xf32>
    %80 = stablehlo.broadcast_in_dim %arg62, dims = [2] : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %81 = stablehlo.broadcast_in_dim %80, dims = [0, 1, 2] : (tensor<1x1x256xf32>) -> tensor<16x32x256xf32>
    %82 = stablehlo.add %79, %81 : tensor<16x32x256xf32>
    %83 = stablehlo.multiply %82, %82 : tensor<16x32x256xf32>
    %84 = stablehlo.multiply %83, %82 : tensor<16x32x256xf32>
    %85 = stablehlo.multiply %82, %82 : tensor<16x32x256xf32>
    %cst_17 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %87 = stablehlo.multiply %86, %85 : tensor<16x32x256xf32>
    %cst_18 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %88 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %89 = stablehlo.multiply %88, %84 : tensor<16x32x256xf32>
    %90 = stablehlo.add %82, %89 : tensor<16x32x256xf32>
    %cst_19 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %91 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %92 = stablehlo.multiply %91, %90 : tensor<16x32x256xf32>
    %93 = stablehlo.tanh %92 : tensor<16x32x256xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %94 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %95 = stablehlo.add %94, %93 : tensor<16x32x256xf32>
    %cst_21 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %96 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %97 = stablehlo.subtract %96, %93 : tensor<16x32x256xf32>
    %98 = stablehlo.multiply %95, %97 : tensor<16x32x256xf32>
    %cst_22 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %99 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %100 = stablehlo.add %99, %93 : tensor<16x32x256xf32>
    %cst_23 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %101 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %102 = stablehlo.multiply %101, %100 : tensor<16x32x256xf32>
    %103 = stablehlo.multiply %82, %102 : tensor<16x32x256xf32>
    %104 = stablehlo.dot_general %103, %arg52, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<256x64xf32>) -> tensor<16x32x64xf32>
    %105 = stablehlo.broadcast_in_dim %arg53, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %106 = stablehlo.broadcast_in_dim %105, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %107 = stablehlo.add %104, %106 : tensor<16x32x64xf32>
    %108 = stablehlo.add %57, %107 : tensor<16x32x64xf32>
    %cst_24 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %109 = stablehlo.reduce(%108 init: %cst_24) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_25 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %111 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %112 = stablehlo.divide %110, %111 : tensor<16x32x1xf32>
    %c_26 = stablehlo.constant dense<0> : tensor<i32>
    %113:4 = call @_var(%108, %c_26) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %114 = stablehlo.broadcast_in_dim %112, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %115 = stablehlo.subtract %108, %114 : tensor<16x32x64xf32>
    %cst_27 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %116 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %117 = stablehlo.add %113#0, %116 : tensor<16x32x1xf32>
    %118 = stablehlo.rsqrt %117 : tensor<16x32x1xf32>
    %119 = stablehlo.divide %118, %117 : tensor<16x32x1xf32>
    %cst_28 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %120 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %121 = stablehlo.multiply %120, %119 : tensor<16x32x1xf32>
    %122 = stablehlo.broadcast_in_dim %118, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %123 = stablehlo.multiply %115, %122 : tensor<16x32x64xf32>
    %124 = stablehlo.broadcast_in_dim %arg68, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %125 = stablehlo.broadcast_in_dim %124, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %126 = stablehlo.multiply %123, %125 : tensor<16x32x64xf32>
    %127 = stablehlo.broadcast_in_dim %arg67, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %128 = stablehlo.broadcast_in_dim %127, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %129 = stablehlo.add %126, %128 : tensor<16x32x64xf32>
    %130 = stablehlo.dot_general %129, %arg72, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %131 = stablehlo.dot_general %129, %arg66, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %132 = stablehlo.dot_general %129, %arg75, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %133 = stablehlo.dot_general %130, %131, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %cst_29 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %134 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %135 = stablehlo.divide %133, %134 : tensor<16x4x32x32xf32>
    %c_30 = stablehlo.constant dense<true> : tensor<i1>
    %136 = stablehlo.broadcast_in_dim %c_30, dims = [] : (tensor<i1>) -> tensor<32x32xi1>
    %137 = call @tril(%136) : (tensor<32x32xi1>) -> tensor<32x32xi1>
    %cst_31 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %138:2 = call @_where_0(%137, %135, %cst_31) : (tensor<32x32xi1>, tensor<16x4x32x32xf32>, tensor<f32>) -> (tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>)
    %cst_32 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %139 = stablehlo.reduce(%138#0 init: %cst_32) applies stablehlo.maximum across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %cst_33 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %140 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<16x4x32xf32>
    %141 = stablehlo.maximum %140, %139 : tensor<16x4x32xf32>
    %142 = stablehlo.broadcast_in_dim %141, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %143 = stablehlo.broadcast_in_dim %142, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %144 = stablehlo.subtract %138#0, %143 : tensor<16x4x32x32xf32>
    %145 = stablehlo.exponential %144 : tensor<16x4x32x32xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %146 = stablehlo.reduce(%145 init: %cst_34) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %147 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %148 = stablehlo.broadcast_in_dim %147, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %149 = stablehlo.divide %145, %148 : tensor<16x4x32x32xf32>
    %150 = stablehlo.multiply %147, %147 : tensor<16x4x32x1xf32>
    %cst_35 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %151 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<16x4x32x1xf32>
    %152 = stablehlo.divide %151, %150 : tensor<16x4x32x1xf32>
    %153 = stablehlo.dot_general %132, %149, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %154 = stablehlo.transpose %153, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %155 = stablehlo.dot_general %154, %arg71, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<4x16x64xf32>) -> tensor<16x32x64xf32>
    %156 = stablehlo.add %108, %155 : tensor<16x32x64xf32>
    %cst_36 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %157 = stablehlo.reduce(%156 init: %cst_36) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %158 = stablehlo.broadcast_in_dim %157, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_37 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %159 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %160 = stablehlo.divide %158, %159 : tensor<16x32x1xf32>
    %c_38 = stablehlo.constant dense<0> : tensor<i32>
    %161:4 = call @_var(%156, %c_38) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %162 = stablehlo.broadcast_in_dim %160, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %163 = stablehlo.subtract %156, %162 : tensor<16x32x64xf32>
    %cst_39 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %164 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %165 = stablehlo.add %161#0, %164 : tensor<16x32x1xf32>
    %166 = stablehlo.rsqrt %165 : tensor<16x32x1xf32>
    %167 = stablehlo.divide %166, %165 : tensor<16x32x1xf32>
    %cst_40 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %168 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %169 = stablehlo.multiply %168, %167 : tensor<16x32x1xf32>
    %170 = stablehlo.broadcast_in_dim %166, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %171 = stablehlo.multiply %163, %170 : tensor<16x32x64xf32>
    %172 = stablehlo.broadcast_in_dim %arg70, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %173 = stablehlo.broadcast_in_dim %172, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %174 = stablehlo.multiply %171, %173 : tensor<16x32x64xf32>
    %175 = stablehlo.broadcast_in_dim %arg69, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %176 = stablehlo.broadcast_in_dim %175, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %177 = stablehlo.add %174, %176 : tensor<16x32x64xf32>
    %178 = stablehlo.dot_general %177, %arg73, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x256xf32>) -> tensor<16x32x256xf32>
    %179 = stablehlo.broadcast_in_dim %arg74, dims = [2] : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %180 = stablehlo.broadcast_in_dim %179, dims = [0, 1, 2] : (tensor<1x1x256xf32>) -> tensor<16x32x256xf32>
    %181 = stablehlo.add %178, %180 : tensor<16x32x256xf32>
    %182 = stablehlo.multiply %181, %181 : tensor<16x32x256xf32>
    %183 = stablehlo.multiply %182, %181 : tensor<16x32x256xf32>
    %184 = stablehlo.multiply %181, %181 : tensor<16x32x256xf32>
    %cst_41 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %185 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %186 = stablehlo.multiply %185, %184 : tensor<16x32x256xf32>
    %cst_42 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %187 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %188 = stablehlo.multiply %187, %183 : tensor<16x32x256xf32>
    %189 = stablehlo.add %181, %188 : tensor<16x32x256xf32>
    %cst_43 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %190 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %191 = stablehlo.multiply %190, %189 : tensor<16x32x256xf32>
    %192 = stablehlo.tanh %191 : tensor<16x32x256xf32>
    %cst_44 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %193 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %194 = stablehlo.add %193, %192 : tensor<16x32x256xf32>
    %cst_45 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %195 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %196 = stablehlo.subtract %195, %192 : tensor<16x32x256xf32>
    %197 = stablehlo.multiply %194, %196 : tensor<16x32x256xf32>
    %cst_46 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %198 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %199 = stablehlo.add %198, %192 : tensor<16x32x256xf32>
    %cst_47 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %200 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %201 = stablehlo.multiply %200, %199 : tensor<16x32x256xf32>
    %202 = stablehlo.multiply %181, %201 : tensor<16x32x256xf32>
    %203 = stablehlo.dot_general %202, %arg64, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<256x64xf32>) -> tensor<16x32x64xf32>
    %204 = stablehlo.broadcast_in_dim %arg65, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %205 = stablehlo.broadcast_in_dim %204, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %206 = stablehlo.add %203, %205 : tensor<16x32x64xf32>
    %207 = stablehlo.add %156, %206 : tensor<16x32x64xf32>
    %cst_48 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %208 = stablehlo.reduce(%207 init: %cst_48) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %209 = stablehlo.broadcast_in_dim %208, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_49 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %210 = stablehlo.broadcast_in_dim %cst_49, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %211 = stablehlo.divide %209, %210 : tensor<16x32x1xf32>
    %c_50 = stablehlo.constant dense<0> : tensor<i32>
    %212:4 = call @_var(%207, %c_50) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %213 = stablehlo.broadcast_in_dim %211, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %214 = stablehlo.subtract %207, %213 : tensor<16x32x64xf32>
    %cst_51 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %215 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %216 = stablehlo.add %212#0, %215 : tensor<16x32x1xf32>
    %217 = stablehlo.rsqrt %216 : tensor<16x32x1xf32>
    %218 = stablehlo.divide %217, %216 : tensor<16x32x1xf32>
    %cst_52 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %219 = stablehlo.broadcast_in_dim %cst_52, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %220 = stablehlo.multiply %219, %218 : tensor<16x32x1xf32>
    %221 = stablehlo.broadcast_in_dim %217, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %222 = stablehlo.multiply %214, %221 : tensor<16x32x64xf32>
    %223 = stablehlo.broadcast_in_dim %arg80, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %224 = stablehlo.broadcast_in_dim %223, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %225 = stablehlo.multiply %222, %224 : tensor<16x32x64xf32>
    %226 = stablehlo.broadcast_in_dim %arg79, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %227 = stablehlo.broadcast_in_dim %226, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %228 = stablehlo.add %225, %227 : tensor<16x32x64xf32>
    %229 = stablehlo.dot_general %228, %arg84, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %230 = stablehlo.dot_general %228, %arg78, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %231 = stablehlo.dot_general %228, %arg87, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %232 = stablehlo.dot_general %229, %230, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %cst_53 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %233 = stablehlo.broadcast_in_dim %cst_53, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %234 = stablehlo.divide %232, %233 : tensor<16x4x32x32xf32>
    %c_54 = stablehlo.constant dense<true> : tensor<i1>
    %235 = stablehlo.broadcast_in_dim %c_54, dims = [] : (tensor<i1>) -> tensor<32x32xi1>
    %236 = call @tril(%235) : (tensor<32x32xi1>) -> tensor<32x32xi1>
    %cst_55 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %237:2 = call @_where_0(%236, %234, %cst_55) : (tensor<32x32xi1>, tensor<16x4x32x32xf32>, tensor<f32>) -> (tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>)
    %cst_56 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %238 = stablehlo.reduce(%237#0 init: %cst_56) applies stablehlo.maximum across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %cst_57 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %239 = stablehlo.broadcast_in_dim %cst_57, dims = [] : (tensor<f32>) -> tensor<16x4x32xf32>
    %240 = stablehlo.maximum %239, %238 : tensor<16x4x32xf32>
    %241 = stablehlo.broadcast_in_dim %240, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %242 = stablehlo.broadcast_in_dim %241, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %243 = stablehlo.subtract %237#0, %242 : tensor<16x4x32x32xf32>
    %244 = stablehlo.exponential %243 : tensor<16x4x32x32xf32>
    %cst_58 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %245 = stablehlo.reduce(%244 init: %cst_58) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %246 = stablehlo.broadcast_in_dim %245, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %247 = stablehlo.broadcast_in_dim %246, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %248 = stablehlo.divide %244, %247 : tensor<16x4x32x32xf32>
    %249 = stablehlo.multiply %246, %246 : tensor<16x4x32x1xf32>
    %cst_59 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %250 = stablehlo.broadcast_in_dim %cst_59, dims = [] : (tensor<f32>) -> tensor<16x4x32x1xf32>
    %251 = stablehlo.divide %250, %249 : tensor<16x4x32x1xf32>
    %252 = stablehlo.dot_general %231, %248, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %253 = stablehlo.transpose %252, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %254 = stablehlo.dot_general %253, %arg83, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<4x16x64xf32>) -> tensor<16x32x64xf32>
    %255 = stablehlo.add %207, %254 : tensor<16x32x64xf32>
    %cst_60 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %256 = stablehlo.reduce(%255 init: %cst_60) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %257 = stablehlo.broadcast_in_dim %256, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_61 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %258 = stablehlo.broadcast_in_dim %cst_61, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %259 = stablehlo.divide %257, %258 : tensor<16x32x1xf32>
    %c_62 = stablehlo.constant dense<0> : tensor<i32>
    %260:4 = call @_var(%255, %c_62) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %261 = stablehlo.broadcast_in_dim %259, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %262 = stablehlo.subtract %255, %261 : tensor<16x32x64xf32>
    %cst_63 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %263 = stablehlo.broadcast_in_dim %cst_63, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %264 = stablehlo.add %260#0, %263 : tensor<16x32x1xf32>
    %265 = stablehlo.rsqrt %264 : tensor<16x32x1xf32>
    %266 = stablehlo.divide %265, %264 : tensor<16x32x1xf32>
    %cst_64 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %267 = stablehlo.broadcast_in_dim %cst_64, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %268 = stablehlo.multiply %267, %266 : tensor<16x32x1xf32>
    %269 = stablehlo.broadcast_in_dim %265, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %270 = stablehlo.multiply %262, %269 : tensor<16x32x64xf32>
    %271 = stablehlo.broadcast_in_dim %arg82, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %272 = stablehlo.broadcast_in_dim %271, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %273 = stablehlo.multiply %270, %272 : tensor<16x32x64xf32>
    %274 = stablehlo.broadcast_in_dim %arg81, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %275 = stablehlo.broadcast_in_dim %274, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %276 = stablehlo.add %273, %275 : tensor<16x32x64xf32>
    %277 = stablehlo.dot_general %276, %arg85, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x256xf32>) -> tensor<16x32x256xf32>
    %278 = stablehlo.broadcast_in_dim %arg86, dims = [2] : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %279 = stablehlo.broadcast_in_dim %278, dims = [0, 1, 2] : (tensor<1x1x256xf32>) -> tensor<16x32x256xf32>
    %280 = stablehlo.add %277, %279 : tensor<16x32x256xf32>
    %281 = stablehlo.multiply %280, %280 : tensor<16x32x256xf32>
    %282 = stablehlo.multiply %281, %280 : tensor<16x32x256xf32>
    %283 = stablehlo.multiply %280, %280 : tensor<16x32x256xf32>
    %cst_65 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %284 = stablehlo.broadcast_in_dim %cst_65, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %285 = stablehlo.multiply %284, %283 : tensor<16x32x256xf32>
    %cst_66 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %286 = stablehlo.broadcast_in_dim %cst_66, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %287 = stablehlo.multiply %286, %282 : tensor<16x32x256xf32>
    %288 = stablehlo.add %280, %287 : tensor<16x32x256xf32>
    %cst_67 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %289 = stablehlo.broadcast_in_dim %cst_67, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %290 = stablehlo.multiply %289, %288 : tensor<16x32x256xf32>
    %291 = stablehlo.tanh %290 : tensor<16x32x256xf32>
    %cst_68 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %292 = stablehlo.broadcast_in_dim %cst_68, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %293 = stablehlo.add %292, %291 : tensor<16x32x256xf32>
    %cst_69 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %294 = stablehlo.broadcast_in_dim %cst_69, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %295 = stablehlo.subtract %294, %291 : tensor<16x32x256xf32>
    %296 = stablehlo.multiply %293, %295 : tensor<16x32x256xf32>
    %cst_70 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %297 = stablehlo.broadcast_in_dim %cst_70, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %298 = stablehlo.add %297, %291 : tensor<16x32x256xf32>
    %cst_71 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %299 = stablehlo.broadcast_in_dim %cst_71, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %300 = stablehlo.multiply %299, %298 : tensor<16x32x256xf32>
    %301 = stablehlo.multiply %280, %300 : tensor<16x32x256xf32>
    %302 = stablehlo.dot_general %301, %arg76, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<256x64xf32>) -> tensor<16x32x64xf32>
    %303 = stablehlo.broadcast_in_dim %arg77, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %304 = stablehlo.broadcast_in_dim %303, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %305 = stablehlo.add %302, %304 : tensor<16x32x64xf32>
    %306 = stablehlo.add %255, %305 : tensor<16x32x64xf32>
    %cst_72 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %307 = stablehlo.reduce(%306 init: %cst_72) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %308 = stablehlo.broadcast_in_dim %307, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_73 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %309 = stablehlo.broadcast_in_dim %cst_73, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %310 = stablehlo.divide %308, %309 : tensor<16x32x1xf32>
    %c_74 = stablehlo.constant dense<0> : tensor<i32>
    %311:4 = call @_var(%306, %c_74) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %312 = stablehlo.broadcast_in_dim %310, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %313 = stablehlo.subtract %306, %312 : tensor<16x32x64xf32>
    %cst_75 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %314 = stablehlo.broadcast_in_dim %cst_75, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %315 = stablehlo.add %311#0, %314 : tensor<16x32x1xf32>
    %316 = stablehlo.rsqrt %315 : tensor<16x32x1xf32>
    %317 = stablehlo.divide %316, %315 : tensor<16x32x1xf32>
    %cst_76 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %318 = stablehlo.broadcast_in_dim %cst_76, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %319 = stablehlo.multiply %318, %317 : tensor<16x32x1xf32>
    %320 = stablehlo.broadcast_in_dim %316, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %321 = stablehlo.multiply %313, %320 : tensor<16x32x64xf32>
    %322 = stablehlo.broadcast_in_dim %arg92, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %323 = stablehlo.broadcast_in_dim %322, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %324 = stablehlo.multiply %321, %323 : tensor<16x32x64xf32>
    %325 = stablehlo.broadcast_in_dim %arg91, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %326 = stablehlo.broadcast_in_dim %325, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %327 = stablehlo.add %324, %326 : tensor<16x32x64xf32>
    %328 = stablehlo.dot_general %327, %arg96, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %329 = stablehlo.dot_general %327, %arg90, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %330 = stablehlo.dot_general %327, %arg99, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x4x16xf32>) -> tensor<16x32x4x16xf32>
    %331 = stablehlo.dot_general %328, %329, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %cst_77 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %332 = stablehlo.broadcast_in_dim %cst_77, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %333 = stablehlo.divide %331, %332 : tensor<16x4x32x32xf32>
    %c_78 = stablehlo.constant dense<true> : tensor<i1>
    %334 = stablehlo.broadcast_in_dim %c_78, dims = [] : (tensor<i1>) -> tensor<32x32xi1>
    %335 = call @tril(%334) : (tensor<32x32xi1>) -> tensor<32x32xi1>
    %cst_79 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %336:2 = call @_where_0(%335, %333, %cst_79) : (tensor<32x32xi1>, tensor<16x4x32x32xf32>, tensor<f32>) -> (tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>)
    %cst_80 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %337 = stablehlo.reduce(%336#0 init: %cst_80) applies stablehlo.maximum across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %cst_81 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %338 = stablehlo.broadcast_in_dim %cst_81, dims = [] : (tensor<f32>) -> tensor<16x4x32xf32>
    %339 = stablehlo.maximum %338, %337 : tensor<16x4x32xf32>
    %340 = stablehlo.broadcast_in_dim %339, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %341 = stablehlo.broadcast_in_dim %340, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %342 = stablehlo.subtract %336#0, %341 : tensor<16x4x32x32xf32>
    %343 = stablehlo.exponential %342 : tensor<16x4x32x32xf32>
    %cst_82 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %344 = stablehlo.reduce(%343 init: %cst_82) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %345 = stablehlo.broadcast_in_dim %344, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %346 = stablehlo.broadcast_in_dim %345, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %347 = stablehlo.divide %343, %346 : tensor<16x4x32x32xf32>
    %348 = stablehlo.multiply %345, %345 : tensor<16x4x32x1xf32>
    %cst_83 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %349 = stablehlo.broadcast_in_dim %cst_83, dims = [] : (tensor<f32>) -> tensor<16x4x32x1xf32>
    %350 = stablehlo.divide %349, %348 : tensor<16x4x32x1xf32>
    %351 = stablehlo.dot_general %330, %347, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %352 = stablehlo.transpose %351, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %353 = stablehlo.dot_general %352, %arg95, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<4x16x64xf32>) -> tensor<16x32x64xf32>
    %354 = stablehlo.add %306, %353 : tensor<16x32x64xf32>
    %cst_84 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %355 = stablehlo.reduce(%354 init: %cst_84) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %356 = stablehlo.broadcast_in_dim %355, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_85 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %357 = stablehlo.broadcast_in_dim %cst_85, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %358 = stablehlo.divide %356, %357 : tensor<16x32x1xf32>
    %c_86 = stablehlo.constant dense<0> : tensor<i32>
    %359:4 = call @_var(%354, %c_86) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %360 = stablehlo.broadcast_in_dim %358, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %361 = stablehlo.subtract %354, %360 : tensor<16x32x64xf32>
    %cst_87 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %362 = stablehlo.broadcast_in_dim %cst_87, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %363 = stablehlo.add %359#0, %362 : tensor<16x32x1xf32>
    %364 = stablehlo.rsqrt %363 : tensor<16x32x1xf32>
    %365 = stablehlo.divide %364, %363 : tensor<16x32x1xf32>
    %cst_88 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %366 = stablehlo.broadcast_in_dim %cst_88, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %367 = stablehlo.multiply %366, %365 : tensor<16x32x1xf32>
    %368 = stablehlo.broadcast_in_dim %364, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %369 = stablehlo.multiply %361, %368 : tensor<16x32x64xf32>
    %370 = stablehlo.broadcast_in_dim %arg94, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %371 = stablehlo.broadcast_in_dim %370, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %372 = stablehlo.multiply %369, %371 : tensor<16x32x64xf32>
    %373 = stablehlo.broadcast_in_dim %arg93, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %374 = stablehlo.broadcast_in_dim %373, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %375 = stablehlo.add %372, %374 : tensor<16x32x64xf32>
    %376 = stablehlo.dot_general %375, %arg97, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x256xf32>) -> tensor<16x32x256xf32>
    %377 = stablehlo.broadcast_in_dim %arg98, dims = [2] : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %378 = stablehlo.broadcast_in_dim %377, dims = [0, 1, 2] : (tensor<1x1x256xf32>) -> tensor<16x32x256xf32>
    %379 = stablehlo.add %376, %378 : tensor<16x32x256xf32>
    %380 = stablehlo.multiply %379, %379 : tensor<16x32x256xf32>
    %381 = stablehlo.multiply %380, %379 : tensor<16x32x256xf32>
    %382 = stablehlo.multiply %379, %379 : tensor<16x32x256xf32>
    %cst_89 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %383 = stablehlo.broadcast_in_dim %cst_89, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %384 = stablehlo.multiply %383, %382 : tensor<16x32x256xf32>
    %cst_90 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %385 = stablehlo.broadcast_in_dim %cst_90, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %386 = stablehlo.multiply %385, %381 : tensor<16x32x256xf32>
    %387 = stablehlo.add %379, %386 : tensor<16x32x256xf32>
    %cst_91 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %388 = stablehlo.broadcast_in_dim %cst_91, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %389 = stablehlo.multiply %388, %387 : tensor<16x32x256xf32>
    %390 = stablehlo.tanh %389 : tensor<16x32x256xf32>
    %cst_92 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %391 = stablehlo.broadcast_in_dim %cst_92, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %392 = stablehlo.add %391, %390 : tensor<16x32x256xf32>
    %cst_93 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %393 = stablehlo.broadcast_in_dim %cst_93, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %394 = stablehlo.subtract %393, %390 : tensor<16x32x256xf32>
    %395 = stablehlo.multiply %392, %394 : tensor<16x32x256xf32>
    %cst_94 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %396 = stablehlo.broadcast_in_dim %cst_94, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %397 = stablehlo.add %396, %390 : tensor<16x32x256xf32>
    %cst_95 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %398 = stablehlo.broadcast_in_dim %cst_95, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %399 = stablehlo.multiply %398, %397 : tensor<16x32x256xf32>
    %400 = stablehlo.multiply %379, %399 : tensor<16x32x256xf32>
    %401 = stablehlo.dot_general %400, %arg88, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<256x64xf32>) -> tensor<16x32x64xf32>
    %402 = stablehlo.broadcast_in_dim %arg89, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %403 = stablehlo.broadcast_in_dim %402, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %404 = stablehlo.add %401, %403 : tensor<16x32x64xf32>
    %405 = stablehlo.add %354, %404 : tensor<16x32x64xf32>
    %cst_96 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %406 = stablehlo.reduce(%405 init: %cst_96) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %407 = stablehlo.broadcast_in_dim %406, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_97 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %408 = stablehlo.broadcast_in_dim %cst_97, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %409 = stablehlo.divide %407, %408 : tensor<16x32x1xf32>
    %c_98 = stablehlo.constant dense<0> : tensor<i32>
    %410:4 = call @_var(%405, %c_98) : (tensor<16x32x64xf32>, tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>)
    %411 = stablehlo.broadcast_in_dim %409, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %412 = stablehlo.subtract %405, %411 : tensor<16x32x64xf32>
    %cst_99 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %413 = stablehlo.broadcast_in_dim %cst_99, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %414 = stablehlo.add %410#0, %413 : tensor<16x32x1xf32>
    %415 = stablehlo.rsqrt %414 : tensor<16x32x1xf32>
    %416 = stablehlo.divide %415, %414 : tensor<16x32x1xf32>
    %cst_100 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %417 = stablehlo.broadcast_in_dim %cst_100, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %418 = stablehlo.multiply %417, %416 : tensor<16x32x1xf32>
    %419 = stablehlo.broadcast_in_dim %415, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %420 = stablehlo.multiply %412, %419 : tensor<16x32x64xf32>
    %421 = stablehlo.broadcast_in_dim %arg102, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %422 = stablehlo.broadcast_in_dim %421, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %423 = stablehlo.multiply %420, %422 : tensor<16x32x64xf32>
    %424 = stablehlo.broadcast_in_dim %arg101, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %425 = stablehlo.broadcast_in_dim %424, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %426 = stablehlo.add %423, %425 : tensor<16x32x64xf32>
    %427 = stablehlo.transpose %arg100, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
    %428 = stablehlo.dot_general %426, %427, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<64x128xf32>) -> tensor<16x32x128xf32>
    %429 = stablehlo.broadcast_in_dim %arg104, dims = [0, 1] : (tensor<16x32xi32>) -> tensor<16x32x1xi32>
    %430:2 = call @take_along_axis(%428, %429) : (tensor<16x32x128xf32>, tensor<16x32x1xi32>) -> (tensor<16x32x1xf32>, tensor<16x32x1x1xi32>)
    %c_101 = stablehlo.constant dense<0> : tensor<i32>
    %431:2 = call @_take(%430#0, %c_101) : (tensor<16x32x1xf32>, tensor<i32>) -> (tensor<16x32xf32>, tensor<1xi32>)
    %cst_102 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %432 = stablehlo.reduce(%428 init: %cst_102) applies stablehlo.maximum across dimensions = [2] : (tensor<16x32x128xf32>, tensor<f32>) -> tensor<16x32xf32>
    %cst_103 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %433 = stablehlo.broadcast_in_dim %cst_103, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %434 = stablehlo.maximum %433, %432 : tensor<16x32xf32>
    %435 = stablehlo.is_finite %434 : (tensor<16x32xf32>) -> tensor<16x32xi1>
    %cst_104 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %436 = stablehlo.broadcast_in_dim %cst_104, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %437 = stablehlo.select %435, %434, %436 : tensor<16x32xi1>, tensor<16x32xf32>
    %438 = stablehlo.broadcast_in_dim %437, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %439 = stablehlo.broadcast_in_dim %438, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x128xf32>
    %440 = stablehlo.subtract %428, %439 : tensor<16x32x128xf32>
    %441 = stablehlo.exponential %440 : tensor<16x32x128xf32>
    %cst_105 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %442 = stablehlo.reduce(%441 init: %cst_105) applies stablehlo.add across dimensions = [2] : (tensor<16x32x128xf32>, tensor<f32>) -> tensor<16x32xf32>
    %443 = stablehlo.abs %442 : tensor<16x32xf32>
    %cst_106 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %444 = stablehlo.broadcast_in_dim %cst_106, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %445 = stablehlo.compare GE, %442, %444, FLOAT : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<16x32xi1>
    %446 = stablehlo.log %443 : tensor<16x32xf32>
    %447 = stablehlo.add %446, %437 : tensor<16x32xf32>
    %448 = stablehlo.subtract %447, %431#0 : tensor<16x32xf32>
    %cst_107 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %449 = stablehlo.reduce(%448 init: %cst_107) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32xf32>, tensor<f32>) -> tensor<f32>
    %cst_108 = stablehlo.constant dense<5.120000e+02> : tensor<f32>
    %450 = stablehlo.divide %449, %cst_108 : tensor<f32>
    %cst_109 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_110 = stablehlo.constant dense<5.120000e+02> : tensor<f32>
    %451 = stablehlo.divide %cst_109, %cst_110 : tensor<f32>
    %452 = stablehlo.broadcast_in_dim %451, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %453 = stablehlo.negate %452 : tensor<16x32xf32>
    %454 = stablehlo.divide %452, %443 : tensor<16x32xf32>
    %cst_111 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %455 = stablehlo.broadcast_in_dim %cst_111, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %456 = stablehlo.select %445, %455, %454 : tensor<16x32xi1>, tensor<16x32xf32>
    %457 = stablehlo.select %445, %454, %455 : tensor<16x32xi1>, tensor<16x32xf32>
    %458 = stablehlo.negate %456 : tensor<16x32xf32>
    %459 = stablehlo.add %457, %458 : tensor<16x32xf32>
    %460 = stablehlo.broadcast_in_dim %459, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x128xf32>
    %461 = stablehlo.multiply %460, %441 : tensor<16x32x128xf32>
    %462 = call @_take_2(%431#1, %453) : (tensor<1xi32>, tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %463 = call @take_along_axis_3(%430#1, %462) : (tensor<16x32x1x1xi32>, tensor<16x32x1xf32>) -> tensor<16x32x128xf32>
    %464 = stablehlo.add %461, %463 : tensor<16x32x128xf32>
    %465 = stablehlo.dot_general %464, %426, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x128xf32>, tensor<16x32x64xf32>) -> tensor<128x64xf32>
    %466 = stablehlo.transpose %465, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
    %467 = stablehlo.dot_general %464, %427, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x128xf32>, tensor<64x128xf32>) -> tensor<16x32x64xf32>
    %468 = stablehlo.transpose %466, dims = [1, 0] : (tensor<64x128xf32>) -> tensor<128x64xf32>
    %cst_112 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %469 = stablehlo.reduce(%467 init: %cst_112) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %470 = stablehlo.reshape %469 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_113 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %471 = stablehlo.reduce(%470 init: %cst_113) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %472 = stablehlo.multiply %420, %467 : tensor<16x32x64xf32>
    %cst_114 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %473 = stablehlo.reduce(%472 init: %cst_114) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %474 = stablehlo.reshape %473 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %475 = stablehlo.broadcast_in_dim %421, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %476 = stablehlo.multiply %467, %475 : tensor<16x32x64xf32>
    %cst_115 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %477 = stablehlo.reduce(%474 init: %cst_115) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %478 = stablehlo.multiply %412, %476 : tensor<16x32x64xf32>
    %cst_116 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %479 = stablehlo.reduce(%478 init: %cst_116) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %480 = stablehlo.reshape %479 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %481 = stablehlo.broadcast_in_dim %415, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %482 = stablehlo.multiply %476, %481 : tensor<16x32x64xf32>
    %483 = stablehlo.multiply %480, %418 : tensor<16x32x1xf32>
    %484 = stablehlo.negate %482 : tensor<16x32x64xf32>
    %cst_117 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %485 = stablehlo.reduce(%484 init: %cst_117) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %486 = stablehlo.reshape %485 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %487 = call @_var_4(%410#1, %410#2, %410#3, %483) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %488 = stablehlo.add %482, %487 : tensor<16x32x64xf32>
    %cst_118 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %489 = stablehlo.broadcast_in_dim %cst_118, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %490 = stablehlo.divide %486, %489 : tensor<16x32x1xf32>
    %cst_119 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %491 = stablehlo.reduce(%490 init: %cst_119) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %492 = stablehlo.broadcast_in_dim %491, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %493 = stablehlo.add %488, %492 : tensor<16x32x64xf32>
    %cst_120 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %494 = stablehlo.reduce(%493 init: %cst_120) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %495 = stablehlo.reshape %494 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_121 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %496 = stablehlo.reduce(%495 init: %cst_121) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %497 = stablehlo.dot_general %493, %400, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x256xf32>) -> tensor<64x256xf32>
    %498 = stablehlo.transpose %497, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %499 = stablehlo.dot_general %493, %arg88, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<256x64xf32>) -> tensor<16x32x256xf32>
    %500 = stablehlo.multiply %379, %499 : tensor<16x32x256xf32>
    %501 = stablehlo.multiply %499, %399 : tensor<16x32x256xf32>
    %cst_122 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %502 = stablehlo.broadcast_in_dim %cst_122, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %503 = stablehlo.multiply %502, %500 : tensor<16x32x256xf32>
    %504 = stablehlo.multiply %503, %395 : tensor<16x32x256xf32>
    %cst_123 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %505 = stablehlo.broadcast_in_dim %cst_123, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %506 = stablehlo.multiply %505, %504 : tensor<16x32x256xf32>
    %507 = stablehlo.add %501, %506 : tensor<16x32x256xf32>
    %cst_124 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %508 = stablehlo.broadcast_in_dim %cst_124, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %509 = stablehlo.multiply %508, %506 : tensor<16x32x256xf32>
    %510 = stablehlo.multiply %509, %384 : tensor<16x32x256xf32>
    %511 = stablehlo.add %507, %510 : tensor<16x32x256xf32>
    %cst_125 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %512 = stablehlo.reduce(%511 init: %cst_125) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x256xf32>, tensor<f32>) -> tensor<256xf32>
    %513 = stablehlo.reshape %512 : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %cst_126 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %514 = stablehlo.reduce(%513 init: %cst_126) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x256xf32>, tensor<f32>) -> tensor<256xf32>
    %515 = stablehlo.dot_general %511, %375, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<16x32x64xf32>) -> tensor<256x64xf32>
    %516 = stablehlo.transpose %515, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %517 = stablehlo.dot_general %511, %arg97, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<64x256xf32>) -> tensor<16x32x64xf32>
    %cst_127 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %518 = stablehlo.reduce(%517 init: %cst_127) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %519 = stablehlo.reshape %518 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_128 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %520 = stablehlo.reduce(%519 init: %cst_128) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %521 = stablehlo.multiply %369, %517 : tensor<16x32x64xf32>
    %cst_129 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %522 = stablehlo.reduce(%521 init: %cst_129) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %523 = stablehlo.reshape %522 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %524 = stablehlo.broadcast_in_dim %370, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %525 = stablehlo.multiply %517, %524 : tensor<16x32x64xf32>
    %cst_130 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %526 = stablehlo.reduce(%523 init: %cst_130) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %527 = stablehlo.multiply %361, %525 : tensor<16x32x64xf32>
    %cst_131 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %528 = stablehlo.reduce(%527 init: %cst_131) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %529 = stablehlo.reshape %528 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %530 = stablehlo.broadcast_in_dim %364, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %531 = stablehlo.multiply %525, %530 : tensor<16x32x64xf32>
    %532 = stablehlo.multiply %529, %367 : tensor<16x32x1xf32>
    %533 = stablehlo.negate %531 : tensor<16x32x64xf32>
    %cst_132 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %534 = stablehlo.reduce(%533 init: %cst_132) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %535 = stablehlo.reshape %534 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %536 = stablehlo.add %493, %531 : tensor<16x32x64xf32>
    %537 = call @_var_4(%359#1, %359#2, %359#3, %532) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %538 = stablehlo.add %536, %537 : tensor<16x32x64xf32>
    %cst_133 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %539 = stablehlo.broadcast_in_dim %cst_133, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %540 = stablehlo.divide %535, %539 : tensor<16x32x1xf32>
    %cst_134 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %541 = stablehlo.reduce(%540 init: %cst_134) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %542 = stablehlo.broadcast_in_dim %541, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %543 = stablehlo.add %538, %542 : tensor<16x32x64xf32>
    %544 = stablehlo.dot_general %543, %352, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x4x16xf32>) -> tensor<64x4x16xf32>
    %545 = stablehlo.transpose %544, dims = [1, 2, 0] : (tensor<64x4x16xf32>) -> tensor<4x16x64xf32>
    %546 = stablehlo.dot_general %543, %arg95, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<4x16x64xf32>) -> tensor<16x32x4x16xf32>
    %547 = stablehlo.transpose %546, dims = [0, 2, 3, 1] : (tensor<16x32x4x16xf32>) -> tensor<16x4x16x32xf32>
    %548 = stablehlo.dot_general %547, %330, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %549 = stablehlo.dot_general %547, %347, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %550 = stablehlo.transpose %549, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %551 = stablehlo.broadcast_in_dim %350, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %552 = stablehlo.multiply %548, %551 : tensor<16x4x32x32xf32>
    %553 = stablehlo.multiply %552, %343 : tensor<16x4x32x32xf32>
    %cst_135 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %554 = stablehlo.reduce(%553 init: %cst_135) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %555 = stablehlo.reshape %554 : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %556 = stablehlo.negate %555 : tensor<16x4x32x1xf32>
    %557 = stablehlo.broadcast_in_dim %345, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %558 = stablehlo.divide %548, %557 : tensor<16x4x32x32xf32>
    %cst_136 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %559 = stablehlo.reduce(%556 init: %cst_136) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x1xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %560 = stablehlo.broadcast_in_dim %559, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x32xf32>
    %561 = stablehlo.add %558, %560 : tensor<16x4x32x32xf32>
    %562 = stablehlo.multiply %561, %343 : tensor<16x4x32x32xf32>
    %563 = call @_where_6(%336#1, %562) : (tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>) -> tensor<16x4x32x32xf32>
    %cst_137 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %564 = stablehlo.broadcast_in_dim %cst_137, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %565 = stablehlo.divide %563, %564 : tensor<16x4x32x32xf32>
    %566 = stablehlo.dot_general %565, %328, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %567 = stablehlo.transpose %566, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %568 = stablehlo.dot_general %565, %329, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %569 = stablehlo.transpose %568, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %570 = stablehlo.dot_general %550, %327, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %571 = stablehlo.transpose %570, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %572 = stablehlo.dot_general %550, %arg99, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %573 = stablehlo.dot_general %567, %327, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %574 = stablehlo.transpose %573, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %575 = stablehlo.dot_general %567, %arg90, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %576 = stablehlo.add %572, %575 : tensor<16x32x64xf32>
    %577 = stablehlo.dot_general %569, %327, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %578 = stablehlo.transpose %577, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %579 = stablehlo.dot_general %569, %arg96, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %580 = stablehlo.add %576, %579 : tensor<16x32x64xf32>
    %cst_138 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %581 = stablehlo.reduce(%580 init: %cst_138) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %582 = stablehlo.reshape %581 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_139 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %583 = stablehlo.reduce(%582 init: %cst_139) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %584 = stablehlo.multiply %321, %580 : tensor<16x32x64xf32>
    %cst_140 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %585 = stablehlo.reduce(%584 init: %cst_140) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %586 = stablehlo.reshape %585 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %587 = stablehlo.broadcast_in_dim %322, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %588 = stablehlo.multiply %580, %587 : tensor<16x32x64xf32>
    %cst_141 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %589 = stablehlo.reduce(%586 init: %cst_141) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %590 = stablehlo.multiply %313, %588 : tensor<16x32x64xf32>
    %cst_142 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %591 = stablehlo.reduce(%590 init: %cst_142) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %592 = stablehlo.reshape %591 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %593 = stablehlo.broadcast_in_dim %316, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %594 = stablehlo.multiply %588, %593 : tensor<16x32x64xf32>
    %595 = stablehlo.multiply %592, %319 : tensor<16x32x1xf32>
    %596 = stablehlo.negate %594 : tensor<16x32x64xf32>
    %cst_143 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %597 = stablehlo.reduce(%596 init: %cst_143) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %598 = stablehlo.reshape %597 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %599 = stablehlo.add %543, %594 : tensor<16x32x64xf32>
    %600 = call @_var_4(%311#1, %311#2, %311#3, %595) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %601 = stablehlo.add %599, %600 : tensor<16x32x64xf32>
    %cst_144 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %602 = stablehlo.broadcast_in_dim %cst_144, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %603 = stablehlo.divide %598, %602 : tensor<16x32x1xf32>
    %cst_145 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %604 = stablehlo.reduce(%603 init: %cst_145) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %605 = stablehlo.broadcast_in_dim %604, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %606 = stablehlo.add %601, %605 : tensor<16x32x64xf32>
    %cst_146 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %607 = stablehlo.reduce(%606 init: %cst_146) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %608 = stablehlo.reshape %607 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_147 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %609 = stablehlo.reduce(%608 init: %cst_147) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %610 = stablehlo.dot_general %606, %301, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x256xf32>) -> tensor<64x256xf32>
    %611 = stablehlo.transpose %610, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %612 = stablehlo.dot_general %606, %arg76, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<256x64xf32>) -> tensor<16x32x256xf32>
    %613 = stablehlo.multiply %280, %612 : tensor<16x32x256xf32>
    %614 = stablehlo.multiply %612, %300 : tensor<16x32x256xf32>
    %cst_148 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %615 = stablehlo.broadcast_in_dim %cst_148, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %616 = stablehlo.multiply %615, %613 : tensor<16x32x256xf32>
    %617 = stablehlo.multiply %616, %296 : tensor<16x32x256xf32>
    %cst_149 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %618 = stablehlo.broadcast_in_dim %cst_149, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %619 = stablehlo.multiply %618, %617 : tensor<16x32x256xf32>
    %620 = stablehlo.add %614, %619 : tensor<16x32x256xf32>
    %cst_150 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %621 = stablehlo.broadcast_in_dim %cst_150, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %622 = stablehlo.multiply %621, %619 : tensor<16x32x256xf32>
    %623 = stablehlo.multiply %622, %285 : tensor<16x32x256xf32>
    %624 = stablehlo.add %620, %623 : tensor<16x32x256xf32>
    %cst_151 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %625 = stablehlo.reduce(%624 init: %cst_151) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x256xf32>, tensor<f32>) -> tensor<256xf32>
    %626 = stablehlo.reshape %625 : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %cst_152 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %627 = stablehlo.reduce(%626 init: %cst_152) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x256xf32>, tensor<f32>) -> tensor<256xf32>
    %628 = stablehlo.dot_general %624, %276, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<16x32x64xf32>) -> tensor<256x64xf32>
    %629 = stablehlo.transpose %628, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %630 = stablehlo.dot_general %624, %arg85, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<64x256xf32>) -> tensor<16x32x64xf32>
    %cst_153 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %631 = stablehlo.reduce(%630 init: %cst_153) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %632 = stablehlo.reshape %631 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_154 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %633 = stablehlo.reduce(%632 init: %cst_154) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %634 = stablehlo.multiply %270, %630 : tensor<16x32x64xf32>
    %cst_155 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %635 = stablehlo.reduce(%634 init: %cst_155) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %636 = stablehlo.reshape %635 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %637 = stablehlo.broadcast_in_dim %271, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %638 = stablehlo.multiply %630, %637 : tensor<16x32x64xf32>
    %cst_156 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %639 = stablehlo.reduce(%636 init: %cst_156) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %640 = stablehlo.multiply %262, %638 : tensor<16x32x64xf32>
    %cst_157 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %641 = stablehlo.reduce(%640 init: %cst_157) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %642 = stablehlo.reshape %641 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %643 = stablehlo.broadcast_in_dim %265, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %644 = stablehlo.multiply %638, %643 : tensor<16x32x64xf32>
    %645 = stablehlo.multiply %642, %268 : tensor<16x32x1xf32>
    %646 = stablehlo.negate %644 : tensor<16x32x64xf32>
    %cst_158 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %647 = stablehlo.reduce(%646 init: %cst_158) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %648 = stablehlo.reshape %647 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %649 = stablehlo.add %606, %644 : tensor<16x32x64xf32>
    %650 = call @_var_4(%260#1, %260#2, %260#3, %645) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %651 = stablehlo.add %649, %650 : tensor<16x32x64xf32>
    %cst_159 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %652 = stablehlo.broadcast_in_dim %cst_159, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %653 = stablehlo.divide %648, %652 : tensor<16x32x1xf32>
    %cst_160 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %654 = stablehlo.reduce(%653 init: %cst_160) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %655 = stablehlo.broadcast_in_dim %654, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %656 = stablehlo.add %651, %655 : tensor<16x32x64xf32>
    %657 = stablehlo.dot_general %656, %253, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x4x16xf32>) -> tensor<64x4x16xf32>
    %658 = stablehlo.transpose %657, dims = [1, 2, 0] : (tensor<64x4x16xf32>) -> tensor<4x16x64xf32>
    %659 = stablehlo.dot_general %656, %arg83, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<4x16x64xf32>) -> tensor<16x32x4x16xf32>
    %660 = stablehlo.transpose %659, dims = [0, 2, 3, 1] : (tensor<16x32x4x16xf32>) -> tensor<16x4x16x32xf32>
    %661 = stablehlo.dot_general %660, %231, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %662 = stablehlo.dot_general %660, %248, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %663 = stablehlo.transpose %662, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %664 = stablehlo.broadcast_in_dim %251, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %665 = stablehlo.multiply %661, %664 : tensor<16x4x32x32xf32>
    %666 = stablehlo.multiply %665, %244 : tensor<16x4x32x32xf32>
    %cst_161 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %667 = stablehlo.reduce(%666 init: %cst_161) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %668 = stablehlo.reshape %667 : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %669 = stablehlo.negate %668 : tensor<16x4x32x1xf32>
    %670 = stablehlo.broadcast_in_dim %246, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %671 = stablehlo.divide %661, %670 : tensor<16x4x32x32xf32>
    %cst_162 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %672 = stablehlo.reduce(%669 init: %cst_162) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x1xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %673 = stablehlo.broadcast_in_dim %672, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x32xf32>
    %674 = stablehlo.add %671, %673 : tensor<16x4x32x32xf32>
    %675 = stablehlo.multiply %674, %244 : tensor<16x4x32x32xf32>
    %676 = call @_where_6(%237#1, %675) : (tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>) -> tensor<16x4x32x32xf32>
    %cst_163 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %677 = stablehlo.broadcast_in_dim %cst_163, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %678 = stablehlo.divide %676, %677 : tensor<16x4x32x32xf32>
    %679 = stablehlo.dot_general %678, %229, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %680 = stablehlo.transpose %679, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %681 = stablehlo.dot_general %678, %230, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %682 = stablehlo.transpose %681, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %683 = stablehlo.dot_general %663, %228, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %684 = stablehlo.transpose %683, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %685 = stablehlo.dot_general %663, %arg87, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %686 = stablehlo.dot_general %680, %228, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %687 = stablehlo.transpose %686, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %688 = stablehlo.dot_general %680, %arg78, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %689 = stablehlo.add %685, %688 : tensor<16x32x64xf32>
    %690 = stablehlo.dot_general %682, %228, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %691 = stablehlo.transpose %690, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %692 = stablehlo.dot_general %682, %arg84, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %693 = stablehlo.add %689, %692 : tensor<16x32x64xf32>
    %cst_164 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %694 = stablehlo.reduce(%693 init: %cst_164) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %695 = stablehlo.reshape %694 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_165 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %696 = stablehlo.reduce(%695 init: %cst_165) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %697 = stablehlo.multiply %222, %693 : tensor<16x32x64xf32>
    %cst_166 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %698 = stablehlo.reduce(%697 init: %cst_166) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %699 = stablehlo.reshape %698 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %700 = stablehlo.broadcast_in_dim %223, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %701 = stablehlo.multiply %693, %700 : tensor<16x32x64xf32>
    %cst_167 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %702 = stablehlo.reduce(%699 init: %cst_167) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %703 = stablehlo.multiply %214, %701 : tensor<16x32x64xf32>
    %cst_168 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %704 = stablehlo.reduce(%703 init: %cst_168) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %705 = stablehlo.reshape %704 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %706 = stablehlo.broadcast_in_dim %217, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %707 = stablehlo.multiply %701, %706 : tensor<16x32x64xf32>
    %708 = stablehlo.multiply %705, %220 : tensor<16x32x1xf32>
    %709 = stablehlo.negate %707 : tensor<16x32x64xf32>
    %cst_169 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %710 = stablehlo.reduce(%709 init: %cst_169) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %711 = stablehlo.reshape %710 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %712 = stablehlo.add %656, %707 : tensor<16x32x64xf32>
    %713 = call @_var_4(%212#1, %212#2, %212#3, %708) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %714 = stablehlo.add %712, %713 : tensor<16x32x64xf32>
    %cst_170 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %715 = stablehlo.broadcast_in_dim %cst_170, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %716 = stablehlo.divide %711, %715 : tensor<16x32x1xf32>
    %cst_171 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %717 = stablehlo.reduce(%716 init: %cst_171) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %718 = stablehlo.broadcast_in_dim %717, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %719 = stablehlo.add %714, %718 : tensor<16x32x64xf32>
    %cst_172 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %720 = stablehlo.reduce(%719 init: %cst_172) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %721 = stablehlo.reshape %720 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_173 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %722 = stablehlo.reduce(%721 init: %cst_173) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %723 = stablehlo.dot_general %719, %202, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x256xf32>) -> tensor<64x256xf32>
    %724 = stablehlo.transpose %723, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %725 = stablehlo.dot_general %719, %arg64, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<256x64xf32>) -> tensor<16x32x256xf32>
    %726 = stablehlo.multiply %181, %725 : tensor<16x32x256xf32>
    %727 = stablehlo.multiply %725, %201 : tensor<16x32x256xf32>
    %cst_174 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %728 = stablehlo.broadcast_in_dim %cst_174, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %729 = stablehlo.multiply %728, %726 : tensor<16x32x256xf32>
    %730 = stablehlo.multiply %729, %197 : tensor<16x32x256xf32>
    %cst_175 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %731 = stablehlo.broadcast_in_dim %cst_175, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %732 = stablehlo.multiply %731, %730 : tensor<16x32x256xf32>
    %733 = stablehlo.add %727, %732 : tensor<16x32x256xf32>
    %cst_176 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %734 = stablehlo.broadcast_in_dim %cst_176, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %735 = stablehlo.multiply %734, %732 : tensor<16x32x256xf32>
    %736 = stablehlo.multiply %735, %186 : tensor<16x32x256xf32>
    %737 = stablehlo.add %733, %736 : tensor<16x32x256xf32>
    %cst_177 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %738 = stablehlo.reduce(%737 init: %cst_177) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x256xf32>, tensor<f32>) -> tensor<256xf32>
    %739 = stablehlo.reshape %738 : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %cst_178 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %740 = stablehlo.reduce(%739 init: %cst_178) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x256xf32>, tensor<f32>) -> tensor<256xf32>
    %741 = stablehlo.dot_general %737, %177, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<16x32x64xf32>) -> tensor<256x64xf32>
    %742 = stablehlo.transpose %741, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %743 = stablehlo.dot_general %737, %arg73, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<64x256xf32>) -> tensor<16x32x64xf32>
    %cst_179 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %744 = stablehlo.reduce(%743 init: %cst_179) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %745 = stablehlo.reshape %744 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_180 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %746 = stablehlo.reduce(%745 init: %cst_180) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %747 = stablehlo.multiply %171, %743 : tensor<16x32x64xf32>
    %cst_181 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %748 = stablehlo.reduce(%747 init: %cst_181) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %749 = stablehlo.reshape %748 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %750 = stablehlo.broadcast_in_dim %172, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %751 = stablehlo.multiply %743, %750 : tensor<16x32x64xf32>
    %cst_182 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %752 = stablehlo.reduce(%749 init: %cst_182) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %753 = stablehlo.multiply %163, %751 : tensor<16x32x64xf32>
    %cst_183 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %754 = stablehlo.reduce(%753 init: %cst_183) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %755 = stablehlo.reshape %754 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %756 = stablehlo.broadcast_in_dim %166, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %757 = stablehlo.multiply %751, %756 : tensor<16x32x64xf32>
    %758 = stablehlo.multiply %755, %169 : tensor<16x32x1xf32>
    %759 = stablehlo.negate %757 : tensor<16x32x64xf32>
    %cst_184 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %760 = stablehlo.reduce(%759 init: %cst_184) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %761 = stablehlo.reshape %760 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %762 = stablehlo.add %719, %757 : tensor<16x32x64xf32>
    %763 = call @_var_4(%161#1, %161#2, %161#3, %758) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %764 = stablehlo.add %762, %763 : tensor<16x32x64xf32>
    %cst_185 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %765 = stablehlo.broadcast_in_dim %cst_185, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %766 = stablehlo.divide %761, %765 : tensor<16x32x1xf32>
    %cst_186 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %767 = stablehlo.reduce(%766 init: %cst_186) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %768 = stablehlo.broadcast_in_dim %767, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %769 = stablehlo.add %764, %768 : tensor<16x32x64xf32>
    %770 = stablehlo.dot_general %769, %154, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x4x16xf32>) -> tensor<64x4x16xf32>
    %771 = stablehlo.transpose %770, dims = [1, 2, 0] : (tensor<64x4x16xf32>) -> tensor<4x16x64xf32>
    %772 = stablehlo.dot_general %769, %arg71, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<4x16x64xf32>) -> tensor<16x32x4x16xf32>
    %773 = stablehlo.transpose %772, dims = [0, 2, 3, 1] : (tensor<16x32x4x16xf32>) -> tensor<16x4x16x32xf32>
    %774 = stablehlo.dot_general %773, %132, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %775 = stablehlo.dot_general %773, %149, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %776 = stablehlo.transpose %775, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %777 = stablehlo.broadcast_in_dim %152, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %778 = stablehlo.multiply %774, %777 : tensor<16x4x32x32xf32>
    %779 = stablehlo.multiply %778, %145 : tensor<16x4x32x32xf32>
    %cst_187 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %780 = stablehlo.reduce(%779 init: %cst_187) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %781 = stablehlo.reshape %780 : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %782 = stablehlo.negate %781 : tensor<16x4x32x1xf32>
    %783 = stablehlo.broadcast_in_dim %147, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %784 = stablehlo.divide %774, %783 : tensor<16x4x32x32xf32>
    %cst_188 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %785 = stablehlo.reduce(%782 init: %cst_188) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x1xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %786 = stablehlo.broadcast_in_dim %785, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x32xf32>
    %787 = stablehlo.add %784, %786 : tensor<16x4x32x32xf32>
    %788 = stablehlo.multiply %787, %145 : tensor<16x4x32x32xf32>
    %789 = call @_where_6(%138#1, %788) : (tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>) -> tensor<16x4x32x32xf32>
    %cst_189 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %790 = stablehlo.broadcast_in_dim %cst_189, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %791 = stablehlo.divide %789, %790 : tensor<16x4x32x32xf32>
    %792 = stablehlo.dot_general %791, %130, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %793 = stablehlo.transpose %792, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %794 = stablehlo.dot_general %791, %131, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %795 = stablehlo.transpose %794, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %796 = stablehlo.dot_general %776, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %797 = stablehlo.transpose %796, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %798 = stablehlo.dot_general %776, %arg75, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %799 = stablehlo.dot_general %793, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %800 = stablehlo.transpose %799, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %801 = stablehlo.dot_general %793, %arg66, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %802 = stablehlo.add %798, %801 : tensor<16x32x64xf32>
    %803 = stablehlo.dot_general %795, %129, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %804 = stablehlo.transpose %803, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %805 = stablehlo.dot_general %795, %arg72, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %806 = stablehlo.add %802, %805 : tensor<16x32x64xf32>
    %cst_190 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %807 = stablehlo.reduce(%806 init: %cst_190) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %808 = stablehlo.reshape %807 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_191 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %809 = stablehlo.reduce(%808 init: %cst_191) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %810 = stablehlo.multiply %123, %806 : tensor<16x32x64xf32>
    %cst_192 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %811 = stablehlo.reduce(%810 init: %cst_192) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %812 = stablehlo.reshape %811 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %813 = stablehlo.broadcast_in_dim %124, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %814 = stablehlo.multiply %806, %813 : tensor<16x32x64xf32>
    %cst_193 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %815 = stablehlo.reduce(%812 init: %cst_193) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %816 = stablehlo.multiply %115, %814 : tensor<16x32x64xf32>
    %cst_194 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %817 = stablehlo.reduce(%816 init: %cst_194) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %818 = stablehlo.reshape %817 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %819 = stablehlo.broadcast_in_dim %118, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %820 = stablehlo.multiply %814, %819 : tensor<16x32x64xf32>
    %821 = stablehlo.multiply %818, %121 : tensor<16x32x1xf32>
    %822 = stablehlo.negate %820 : tensor<16x32x64xf32>
    %cst_195 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %823 = stablehlo.reduce(%822 init: %cst_195) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %824 = stablehlo.reshape %823 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %825 = stablehlo.add %769, %820 : tensor<16x32x64xf32>
    %826 = call @_var_4(%113#1, %113#2, %113#3, %821) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %827 = stablehlo.add %825, %826 : tensor<16x32x64xf32>
    %cst_196 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %828 = stablehlo.broadcast_in_dim %cst_196, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %829 = stablehlo.divide %824, %828 : tensor<16x32x1xf32>
    %cst_197 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %830 = stablehlo.reduce(%829 init: %cst_197) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %831 = stablehlo.broadcast_in_dim %830, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %832 = stablehlo.add %827, %831 : tensor<16x32x64xf32>
    %cst_198 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %833 = stablehlo.reduce(%832 init: %cst_198) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %834 = stablehlo.reshape %833 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_199 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %835 = stablehlo.reduce(%834 init: %cst_199) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %836 = stablehlo.dot_general %832, %103, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x256xf32>) -> tensor<64x256xf32>
    %837 = stablehlo.transpose %836, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %838 = stablehlo.dot_general %832, %arg52, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<256x64xf32>) -> tensor<16x32x256xf32>
    %839 = stablehlo.multiply %82, %838 : tensor<16x32x256xf32>
    %840 = stablehlo.multiply %838, %102 : tensor<16x32x256xf32>
    %cst_200 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %841 = stablehlo.broadcast_in_dim %cst_200, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %842 = stablehlo.multiply %841, %839 : tensor<16x32x256xf32>
    %843 = stablehlo.multiply %842, %98 : tensor<16x32x256xf32>
    %cst_201 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %844 = stablehlo.broadcast_in_dim %cst_201, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %845 = stablehlo.multiply %844, %843 : tensor<16x32x256xf32>
    %846 = stablehlo.add %840, %845 : tensor<16x32x256xf32>
    %cst_202 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %847 = stablehlo.broadcast_in_dim %cst_202, dims = [] : (tensor<f32>) -> tensor<16x32x256xf32>
    %848 = stablehlo.multiply %847, %845 : tensor<16x32x256xf32>
    %849 = stablehlo.multiply %848, %87 : tensor<16x32x256xf32>
    %850 = stablehlo.add %846, %849 : tensor<16x32x256xf32>
    %cst_203 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %851 = stablehlo.reduce(%850 init: %cst_203) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x256xf32>, tensor<f32>) -> tensor<256xf32>
    %852 = stablehlo.reshape %851 : (tensor<256xf32>) -> tensor<1x1x256xf32>
    %cst_204 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %853 = stablehlo.reduce(%852 init: %cst_204) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x256xf32>, tensor<f32>) -> tensor<256xf32>
    %854 = stablehlo.dot_general %850, %78, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<16x32x64xf32>) -> tensor<256x64xf32>
    %855 = stablehlo.transpose %854, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %856 = stablehlo.dot_general %850, %arg61, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x256xf32>, tensor<64x256xf32>) -> tensor<16x32x64xf32>
    %cst_205 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %857 = stablehlo.reduce(%856 init: %cst_205) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %858 = stablehlo.reshape %857 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_206 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %859 = stablehlo.reduce(%858 init: %cst_206) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %860 = stablehlo.multiply %72, %856 : tensor<16x32x64xf32>
    %cst_207 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %861 = stablehlo.reduce(%860 init: %cst_207) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %862 = stablehlo.reshape %861 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %863 = stablehlo.broadcast_in_dim %73, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %864 = stablehlo.multiply %856, %863 : tensor<16x32x64xf32>
    %cst_208 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %865 = stablehlo.reduce(%862 init: %cst_208) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %866 = stablehlo.multiply %64, %864 : tensor<16x32x64xf32>
    %cst_209 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %867 = stablehlo.reduce(%866 init: %cst_209) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %868 = stablehlo.reshape %867 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %869 = stablehlo.broadcast_in_dim %67, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %870 = stablehlo.multiply %864, %869 : tensor<16x32x64xf32>
    %871 = stablehlo.multiply %868, %70 : tensor<16x32x1xf32>
    %872 = stablehlo.negate %870 : tensor<16x32x64xf32>
    %cst_210 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %873 = stablehlo.reduce(%872 init: %cst_210) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %874 = stablehlo.reshape %873 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %875 = stablehlo.add %832, %870 : tensor<16x32x64xf32>
    %876 = call @_var_4(%62#1, %62#2, %62#3, %871) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %877 = stablehlo.add %875, %876 : tensor<16x32x64xf32>
    %cst_211 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %878 = stablehlo.broadcast_in_dim %cst_211, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %879 = stablehlo.divide %874, %878 : tensor<16x32x1xf32>
    %cst_212 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %880 = stablehlo.reduce(%879 init: %cst_212) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %881 = stablehlo.broadcast_in_dim %880, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %882 = stablehlo.add %877, %881 : tensor<16x32x64xf32>
    %883 = stablehlo.dot_general %882, %55, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<16x32x4x16xf32>) -> tensor<64x4x16xf32>
    %884 = stablehlo.transpose %883, dims = [1, 2, 0] : (tensor<64x4x16xf32>) -> tensor<4x16x64xf32>
    %885 = stablehlo.dot_general %882, %arg59, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x64xf32>, tensor<4x16x64xf32>) -> tensor<16x32x4x16xf32>
    %886 = stablehlo.transpose %885, dims = [0, 2, 3, 1] : (tensor<16x32x4x16xf32>) -> tensor<16x4x16x32xf32>
    %887 = stablehlo.dot_general %886, %33, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x32xf32>
    %888 = stablehlo.dot_general %886, %50, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<16x4x16x32xf32>, tensor<16x4x32x32xf32>) -> tensor<16x4x16x32xf32>
    %889 = stablehlo.transpose %888, dims = [0, 3, 1, 2] : (tensor<16x4x16x32xf32>) -> tensor<16x32x4x16xf32>
    %890 = stablehlo.broadcast_in_dim %53, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %891 = stablehlo.multiply %887, %890 : tensor<16x4x32x32xf32>
    %892 = stablehlo.multiply %891, %46 : tensor<16x4x32x32xf32>
    %cst_213 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %893 = stablehlo.reduce(%892 init: %cst_213) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x32xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %894 = stablehlo.reshape %893 : (tensor<16x4x32xf32>) -> tensor<16x4x32x1xf32>
    %895 = stablehlo.negate %894 : tensor<16x4x32x1xf32>
    %896 = stablehlo.broadcast_in_dim %48, dims = [0, 1, 2, 3] : (tensor<16x4x32x1xf32>) -> tensor<16x4x32x32xf32>
    %897 = stablehlo.divide %887, %896 : tensor<16x4x32x32xf32>
    %cst_214 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %898 = stablehlo.reduce(%895 init: %cst_214) applies stablehlo.add across dimensions = [3] : (tensor<16x4x32x1xf32>, tensor<f32>) -> tensor<16x4x32xf32>
    %899 = stablehlo.broadcast_in_dim %898, dims = [0, 1, 2] : (tensor<16x4x32xf32>) -> tensor<16x4x32x32xf32>
    %900 = stablehlo.add %897, %899 : tensor<16x4x32x32xf32>
    %901 = stablehlo.multiply %900, %46 : tensor<16x4x32x32xf32>
    %902 = call @_where_6(%39#1, %901) : (tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>) -> tensor<16x4x32x32xf32>
    %cst_215 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %903 = stablehlo.broadcast_in_dim %cst_215, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %904 = stablehlo.divide %902, %903 : tensor<16x4x32x32xf32>
    %905 = stablehlo.dot_general %904, %31, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %906 = stablehlo.transpose %905, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %907 = stablehlo.dot_general %904, %32, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<16x4x32x32xf32>, tensor<16x32x4x16xf32>) -> tensor<16x4x32x16xf32>
    %908 = stablehlo.transpose %907, dims = [0, 2, 1, 3] : (tensor<16x4x32x16xf32>) -> tensor<16x32x4x16xf32>
    %909 = stablehlo.dot_general %889, %30, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %910 = stablehlo.transpose %909, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %911 = stablehlo.dot_general %889, %arg63, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %912 = stablehlo.dot_general %906, %30, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %913 = stablehlo.transpose %912, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %914 = stablehlo.dot_general %906, %arg54, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %915 = stablehlo.add %911, %914 : tensor<16x32x64xf32>
    %916 = stablehlo.dot_general %908, %30, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<16x32x64xf32>) -> tensor<4x16x64xf32>
    %917 = stablehlo.transpose %916, dims = [2, 0, 1] : (tensor<4x16x64xf32>) -> tensor<64x4x16xf32>
    %918 = stablehlo.dot_general %908, %arg60, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<16x32x4x16xf32>, tensor<64x4x16xf32>) -> tensor<16x32x64xf32>
    %919 = stablehlo.add %915, %918 : tensor<16x32x64xf32>
    %cst_216 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %920 = stablehlo.reduce(%919 init: %cst_216) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %921 = stablehlo.reshape %920 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %cst_217 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %922 = stablehlo.reduce(%921 init: %cst_217) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %923 = stablehlo.multiply %24, %919 : tensor<16x32x64xf32>
    %cst_218 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %924 = stablehlo.reduce(%923 init: %cst_218) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %925 = stablehlo.reshape %924 : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %926 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<16x32x64xf32>
    %927 = stablehlo.multiply %919, %926 : tensor<16x32x64xf32>
    %cst_219 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %928 = stablehlo.reduce(%925 init: %cst_219) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %929 = stablehlo.multiply %16, %927 : tensor<16x32x64xf32>
    %cst_220 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %930 = stablehlo.reduce(%929 init: %cst_220) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %931 = stablehlo.reshape %930 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %932 = stablehlo.broadcast_in_dim %19, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %933 = stablehlo.multiply %927, %932 : tensor<16x32x64xf32>
    %934 = stablehlo.multiply %931, %22 : tensor<16x32x1xf32>
    %935 = stablehlo.negate %933 : tensor<16x32x64xf32>
    %cst_221 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %936 = stablehlo.reduce(%935 init: %cst_221) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %937 = stablehlo.reshape %936 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %938 = stablehlo.add %882, %933 : tensor<16x32x64xf32>
    %939 = call @_var_4(%14#1, %14#2, %14#3, %934) : (tensor<16x32x64xf32>, tensor<f32>, tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %940 = stablehlo.add %938, %939 : tensor<16x32x64xf32>
    %cst_222 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %941 = stablehlo.broadcast_in_dim %cst_222, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %942 = stablehlo.divide %937, %941 : tensor<16x32x1xf32>
    %cst_223 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %943 = stablehlo.reduce(%942 init: %cst_223) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %944 = stablehlo.broadcast_in_dim %943, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %945 = stablehlo.add %940, %944 : tensor<16x32x64xf32>
    %cst_224 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %946 = stablehlo.reduce(%945 init: %cst_224) applies stablehlo.add across dimensions = [0] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<32x64xf32>
    %947 = stablehlo.reshape %946 : (tensor<32x64xf32>) -> tensor<1x32x64xf32>
    %cst_225 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %948 = stablehlo.reduce(%947 init: %cst_225) applies stablehlo.add across dimensions = [0] : (tensor<1x32x64xf32>, tensor<f32>) -> tensor<32x64xf32>
    %cst_226 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %949 = stablehlo.broadcast_in_dim %cst_226, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %950 = "stablehlo.scatter"(%949, %5, %945) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg106: tensor<f32>, %arg107: tensor<f32>):
      %1264 = stablehlo.add %arg106, %arg107 : tensor<f32>
      stablehlo.return %1264 : tensor<f32>
    }) : (tensor<128x64xf32>, tensor<16x32x1xi32>, tensor<16x32x64xf32>) -> tensor<128x64xf32>
    %951 = stablehlo.add %468, %950 : tensor<128x64xf32>
    %cst_227 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %952 = stablehlo.broadcast_in_dim %cst_227, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %953 = stablehlo.multiply %952, %arg0 : tensor<256x64xf32>
    %954 = stablehlo.add %837, %953 : tensor<256x64xf32>
    %cst_228 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %955 = stablehlo.broadcast_in_dim %cst_228, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %956 = stablehlo.multiply %955, %arg1 : tensor<64xf32>
    %957 = stablehlo.add %835, %956 : tensor<64xf32>
    %cst_229 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %958 = stablehlo.broadcast_in_dim %cst_229, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %959 = stablehlo.multiply %958, %arg2 : tensor<64x4x16xf32>
    %960 = stablehlo.add %913, %959 : tensor<64x4x16xf32>
    %cst_230 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %961 = stablehlo.broadcast_in_dim %cst_230, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %962 = stablehlo.multiply %961, %arg3 : tensor<64xf32>
    %963 = stablehlo.add %922, %962 : tensor<64xf32>
    %cst_231 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %964 = stablehlo.broadcast_in_dim %cst_231, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %965 = stablehlo.multiply %964, %arg4 : tensor<64xf32>
    %966 = stablehlo.add %928, %965 : tensor<64xf32>
    %cst_232 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %967 = stablehlo.broadcast_in_dim %cst_232, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %968 = stablehlo.multiply %967, %arg5 : tensor<64xf32>
    %969 = stablehlo.add %859, %968 : tensor<64xf32>
    %cst_233 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %970 = stablehlo.broadcast_in_dim %cst_233, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %971 = stablehlo.multiply %970, %arg6 : tensor<64xf32>
    %972 = stablehlo.add %865, %971 : tensor<64xf32>
    %cst_234 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %973 = stablehlo.broadcast_in_dim %cst_234, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %974 = stablehlo.multiply %973, %arg7 : tensor<4x16x64xf32>
    %975 = stablehlo.add %884, %974 : tensor<4x16x64xf32>
    %cst_235 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %976 = stablehlo.broadcast_in_dim %cst_235, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %977 = stablehlo.multiply %976, %arg8 : tensor<64x4x16xf32>
    %978 = stablehlo.add %917, %977 : tensor<64x4x16xf32>
    %cst_236 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %979 = stablehlo.broadcast_in_dim %cst_236, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %980 = stablehlo.multiply %979, %arg9 : tensor<64x256xf32>
    %981 = stablehlo.add %855, %980 : tensor<64x256xf32>
    %cst_237 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %982 = stablehlo.broadcast_in_dim %cst_237, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %983 = stablehlo.multiply %982, %arg10 : tensor<256xf32>
    %984 = stablehlo.add %853, %983 : tensor<256xf32>
    %cst_238 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %985 = stablehlo.broadcast_in_dim %cst_238, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %986 = stablehlo.multiply %985, %arg11 : tensor<64x4x16xf32>
    %987 = stablehlo.add %910, %986 : tensor<64x4x16xf32>
    %cst_239 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %988 = stablehlo.broadcast_in_dim %cst_239, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %989 = stablehlo.multiply %988, %arg12 : tensor<256x64xf32>
    %990 = stablehlo.add %724, %989 : tensor<256x64xf32>
    %cst_240 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %991 = stablehlo.broadcast_in_dim %cst_240, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %992 = stablehlo.multiply %991, %arg13 : tensor<64xf32>
    %993 = stablehlo.add %722, %992 : tensor<64xf32>
    %cst_241 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %994 = stablehlo.broadcast_in_dim %cst_241, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %995 = stablehlo.multiply %994, %arg14 : tensor<64x4x16xf32>
    %996 = stablehlo.add %800, %995 : tensor<64x4x16xf32>
    %cst_242 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %997 = stablehlo.broadcast_in_dim %cst_242, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %998 = stablehlo.multiply %997, %arg15 : tensor<64xf32>
    %999 = stablehlo.add %809, %998 : tensor<64xf32>
    %cst_243 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1000 = stablehlo.broadcast_in_dim %cst_243, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1001 = stablehlo.multiply %1000, %arg16 : tensor<64xf32>
    %1002 = stablehlo.add %815, %1001 : tensor<64xf32>
    %cst_244 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1003 = stablehlo.broadcast_in_dim %cst_244, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1004 = stablehlo.multiply %1003, %arg17 : tensor<64xf32>
    %1005 = stablehlo.add %746, %1004 : tensor<64xf32>
    %cst_245 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1006 = stablehlo.broadcast_in_dim %cst_245, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1007 = stablehlo.multiply %1006, %arg18 : tensor<64xf32>
    %1008 = stablehlo.add %752, %1007 : tensor<64xf32>
    %cst_246 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1009 = stablehlo.broadcast_in_dim %cst_246, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1010 = stablehlo.multiply %1009, %arg19 : tensor<4x16x64xf32>
    %1011 = stablehlo.add %771, %1010 : tensor<4x16x64xf32>
    %cst_247 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1012 = stablehlo.broadcast_in_dim %cst_247, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1013 = stablehlo.multiply %1012, %arg20 : tensor<64x4x16xf32>
    %1014 = stablehlo.add %804, %1013 : tensor<64x4x16xf32>
    %cst_248 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1015 = stablehlo.broadcast_in_dim %cst_248, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1016 = stablehlo.multiply %1015, %arg21 : tensor<64x256xf32>
    %1017 = stablehlo.add %742, %1016 : tensor<64x256xf32>
    %cst_249 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1018 = stablehlo.broadcast_in_dim %cst_249, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1019 = stablehlo.multiply %1018, %arg22 : tensor<256xf32>
    %1020 = stablehlo.add %740, %1019 : tensor<256xf32>
    %cst_250 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1021 = stablehlo.broadcast_in_dim %cst_250, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1022 = stablehlo.multiply %1021, %arg23 : tensor<64x4x16xf32>
    %1023 = stablehlo.add %797, %1022 : tensor<64x4x16xf32>
    %cst_251 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1024 = stablehlo.broadcast_in_dim %cst_251, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1025 = stablehlo.multiply %1024, %arg24 : tensor<256x64xf32>
    %1026 = stablehlo.add %611, %1025 : tensor<256x64xf32>
    %cst_252 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1027 = stablehlo.broadcast_in_dim %cst_252, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1028 = stablehlo.multiply %1027, %arg25 : tensor<64xf32>
    %1029 = stablehlo.add %609, %1028 : tensor<64xf32>
    %cst_253 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1030 = stablehlo.broadcast_in_dim %cst_253, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1031 = stablehlo.multiply %1030, %arg26 : tensor<64x4x16xf32>
    %1032 = stablehlo.add %687, %1031 : tensor<64x4x16xf32>
    %cst_254 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1033 = stablehlo.broadcast_in_dim %cst_254, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1034 = stablehlo.multiply %1033, %arg27 : tensor<64xf32>
    %1035 = stablehlo.add %696, %1034 : tensor<64xf32>
    %cst_255 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1036 = stablehlo.broadcast_in_dim %cst_255, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1037 = stablehlo.multiply %1036, %arg28 : tensor<64xf32>
    %1038 = stablehlo.add %702, %1037 : tensor<64xf32>
    %cst_256 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1039 = stablehlo.broadcast_in_dim %cst_256, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1040 = stablehlo.multiply %1039, %arg29 : tensor<64xf32>
    %1041 = stablehlo.add %633, %1040 : tensor<64xf32>
    %cst_257 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1042 = stablehlo.broadcast_in_dim %cst_257, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1043 = stablehlo.multiply %1042, %arg30 : tensor<64xf32>
    %1044 = stablehlo.add %639, %1043 : tensor<64xf32>
    %cst_258 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1045 = stablehlo.broadcast_in_dim %cst_258, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1046 = stablehlo.multiply %1045, %arg31 : tensor<4x16x64xf32>
    %1047 = stablehlo.add %658, %1046 : tensor<4x16x64xf32>
    %cst_259 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1048 = stablehlo.broadcast_in_dim %cst_259, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1049 = stablehlo.multiply %1048, %arg32 : tensor<64x4x16xf32>
    %1050 = stablehlo.add %691, %1049 : tensor<64x4x16xf32>
    %cst_260 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1051 = stablehlo.broadcast_in_dim %cst_260, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1052 = stablehlo.multiply %1051, %arg33 : tensor<64x256xf32>
    %1053 = stablehlo.add %629, %1052 : tensor<64x256xf32>
    %cst_261 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1054 = stablehlo.broadcast_in_dim %cst_261, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1055 = stablehlo.multiply %1054, %arg34 : tensor<256xf32>
    %1056 = stablehlo.add %627, %1055 : tensor<256xf32>
    %cst_262 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1057 = stablehlo.broadcast_in_dim %cst_262, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1058 = stablehlo.multiply %1057, %arg35 : tensor<64x4x16xf32>
    %1059 = stablehlo.add %684, %1058 : tensor<64x4x16xf32>
    %cst_263 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1060 = stablehlo.broadcast_in_dim %cst_263, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1061 = stablehlo.multiply %1060, %arg36 : tensor<256x64xf32>
    %1062 = stablehlo.add %498, %1061 : tensor<256x64xf32>
    %cst_264 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1063 = stablehlo.broadcast_in_dim %cst_264, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1064 = stablehlo.multiply %1063, %arg37 : tensor<64xf32>
    %1065 = stablehlo.add %496, %1064 : tensor<64xf32>
    %cst_265 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1066 = stablehlo.broadcast_in_dim %cst_265, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1067 = stablehlo.multiply %1066, %arg38 : tensor<64x4x16xf32>
    %1068 = stablehlo.add %574, %1067 : tensor<64x4x16xf32>
    %cst_266 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1069 = stablehlo.broadcast_in_dim %cst_266, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1070 = stablehlo.multiply %1069, %arg39 : tensor<64xf32>
    %1071 = stablehlo.add %583, %1070 : tensor<64xf32>
    %cst_267 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1072 = stablehlo.broadcast_in_dim %cst_267, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1073 = stablehlo.multiply %1072, %arg40 : tensor<64xf32>
    %1074 = stablehlo.add %589, %1073 : tensor<64xf32>
    %cst_268 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1075 = stablehlo.broadcast_in_dim %cst_268, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1076 = stablehlo.multiply %1075, %arg41 : tensor<64xf32>
    %1077 = stablehlo.add %520, %1076 : tensor<64xf32>
    %cst_269 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1078 = stablehlo.broadcast_in_dim %cst_269, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1079 = stablehlo.multiply %1078, %arg42 : tensor<64xf32>
    %1080 = stablehlo.add %526, %1079 : tensor<64xf32>
    %cst_270 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1081 = stablehlo.broadcast_in_dim %cst_270, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1082 = stablehlo.multiply %1081, %arg43 : tensor<4x16x64xf32>
    %1083 = stablehlo.add %545, %1082 : tensor<4x16x64xf32>
    %cst_271 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1084 = stablehlo.broadcast_in_dim %cst_271, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1085 = stablehlo.multiply %1084, %arg44 : tensor<64x4x16xf32>
    %1086 = stablehlo.add %578, %1085 : tensor<64x4x16xf32>
    %cst_272 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1087 = stablehlo.broadcast_in_dim %cst_272, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1088 = stablehlo.multiply %1087, %arg45 : tensor<64x256xf32>
    %1089 = stablehlo.add %516, %1088 : tensor<64x256xf32>
    %cst_273 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1090 = stablehlo.broadcast_in_dim %cst_273, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1091 = stablehlo.multiply %1090, %arg46 : tensor<256xf32>
    %1092 = stablehlo.add %514, %1091 : tensor<256xf32>
    %cst_274 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1093 = stablehlo.broadcast_in_dim %cst_274, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1094 = stablehlo.multiply %1093, %arg47 : tensor<64x4x16xf32>
    %1095 = stablehlo.add %571, %1094 : tensor<64x4x16xf32>
    %cst_275 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1096 = stablehlo.broadcast_in_dim %cst_275, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %1097 = stablehlo.multiply %1096, %arg48 : tensor<128x64xf32>
    %1098 = stablehlo.add %951, %1097 : tensor<128x64xf32>
    %cst_276 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1099 = stablehlo.broadcast_in_dim %cst_276, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1100 = stablehlo.multiply %1099, %arg49 : tensor<64xf32>
    %1101 = stablehlo.add %471, %1100 : tensor<64xf32>
    %cst_277 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1102 = stablehlo.broadcast_in_dim %cst_277, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1103 = stablehlo.multiply %1102, %arg50 : tensor<64xf32>
    %1104 = stablehlo.add %477, %1103 : tensor<64xf32>
    %cst_278 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1105 = stablehlo.broadcast_in_dim %cst_278, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %1106 = stablehlo.multiply %1105, %arg51 : tensor<32x64xf32>
    %1107 = stablehlo.add %948, %1106 : tensor<32x64xf32>
    %cst_279 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1108 = stablehlo.broadcast_in_dim %cst_279, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1109 = stablehlo.multiply %1108, %954 : tensor<256x64xf32>
    %cst_280 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1110 = stablehlo.broadcast_in_dim %cst_280, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1111 = stablehlo.multiply %1110, %957 : tensor<64xf32>
    %cst_281 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1112 = stablehlo.broadcast_in_dim %cst_281, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1113 = stablehlo.multiply %1112, %960 : tensor<64x4x16xf32>
    %cst_282 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1114 = stablehlo.broadcast_in_dim %cst_282, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1115 = stablehlo.multiply %1114, %963 : tensor<64xf32>
    %cst_283 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1116 = stablehlo.broadcast_in_dim %cst_283, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1117 = stablehlo.multiply %1116, %966 : tensor<64xf32>
    %cst_284 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1118 = stablehlo.broadcast_in_dim %cst_284, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1119 = stablehlo.multiply %1118, %969 : tensor<64xf32>
    %cst_285 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1120 = stablehlo.broadcast_in_dim %cst_285, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1121 = stablehlo.multiply %1120, %972 : tensor<64xf32>
    %cst_286 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1122 = stablehlo.broadcast_in_dim %cst_286, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1123 = stablehlo.multiply %1122, %975 : tensor<4x16x64xf32>
    %cst_287 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1124 = stablehlo.broadcast_in_dim %cst_287, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1125 = stablehlo.multiply %1124, %978 : tensor<64x4x16xf32>
    %cst_288 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1126 = stablehlo.broadcast_in_dim %cst_288, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1127 = stablehlo.multiply %1126, %981 : tensor<64x256xf32>
    %cst_289 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1128 = stablehlo.broadcast_in_dim %cst_289, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1129 = stablehlo.multiply %1128, %984 : tensor<256xf32>
    %cst_290 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1130 = stablehlo.broadcast_in_dim %cst_290, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1131 = stablehlo.multiply %1130, %987 : tensor<64x4x16xf32>
    %cst_291 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1132 = stablehlo.broadcast_in_dim %cst_291, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1133 = stablehlo.multiply %1132, %990 : tensor<256x64xf32>
    %cst_292 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1134 = stablehlo.broadcast_in_dim %cst_292, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1135 = stablehlo.multiply %1134, %993 : tensor<64xf32>
    %cst_293 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1136 = stablehlo.broadcast_in_dim %cst_293, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1137 = stablehlo.multiply %1136, %996 : tensor<64x4x16xf32>
    %cst_294 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1138 = stablehlo.broadcast_in_dim %cst_294, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1139 = stablehlo.multiply %1138, %999 : tensor<64xf32>
    %cst_295 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1140 = stablehlo.broadcast_in_dim %cst_295, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1141 = stablehlo.multiply %1140, %1002 : tensor<64xf32>
    %cst_296 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1142 = stablehlo.broadcast_in_dim %cst_296, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1143 = stablehlo.multiply %1142, %1005 : tensor<64xf32>
    %cst_297 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1144 = stablehlo.broadcast_in_dim %cst_297, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1145 = stablehlo.multiply %1144, %1008 : tensor<64xf32>
    %cst_298 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1146 = stablehlo.broadcast_in_dim %cst_298, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1147 = stablehlo.multiply %1146, %1011 : tensor<4x16x64xf32>
    %cst_299 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1148 = stablehlo.broadcast_in_dim %cst_299, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1149 = stablehlo.multiply %1148, %1014 : tensor<64x4x16xf32>
    %cst_300 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1150 = stablehlo.broadcast_in_dim %cst_300, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1151 = stablehlo.multiply %1150, %1017 : tensor<64x256xf32>
    %cst_301 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1152 = stablehlo.broadcast_in_dim %cst_301, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1153 = stablehlo.multiply %1152, %1020 : tensor<256xf32>
    %cst_302 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1154 = stablehlo.broadcast_in_dim %cst_302, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1155 = stablehlo.multiply %1154, %1023 : tensor<64x4x16xf32>
    %cst_303 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1156 = stablehlo.broadcast_in_dim %cst_303, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1157 = stablehlo.multiply %1156, %1026 : tensor<256x64xf32>
    %cst_304 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1158 = stablehlo.broadcast_in_dim %cst_304, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1159 = stablehlo.multiply %1158, %1029 : tensor<64xf32>
    %cst_305 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1160 = stablehlo.broadcast_in_dim %cst_305, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1161 = stablehlo.multiply %1160, %1032 : tensor<64x4x16xf32>
    %cst_306 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1162 = stablehlo.broadcast_in_dim %cst_306, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1163 = stablehlo.multiply %1162, %1035 : tensor<64xf32>
    %cst_307 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1164 = stablehlo.broadcast_in_dim %cst_307, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1165 = stablehlo.multiply %1164, %1038 : tensor<64xf32>
    %cst_308 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1166 = stablehlo.broadcast_in_dim %cst_308, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1167 = stablehlo.multiply %1166, %1041 : tensor<64xf32>
    %cst_309 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1168 = stablehlo.broadcast_in_dim %cst_309, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1169 = stablehlo.multiply %1168, %1044 : tensor<64xf32>
    %cst_310 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1170 = stablehlo.broadcast_in_dim %cst_310, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1171 = stablehlo.multiply %1170, %1047 : tensor<4x16x64xf32>
    %cst_311 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1172 = stablehlo.broadcast_in_dim %cst_311, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1173 = stablehlo.multiply %1172, %1050 : tensor<64x4x16xf32>
    %cst_312 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1174 = stablehlo.broadcast_in_dim %cst_312, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1175 = stablehlo.multiply %1174, %1053 : tensor<64x256xf32>
    %cst_313 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1176 = stablehlo.broadcast_in_dim %cst_313, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1177 = stablehlo.multiply %1176, %1056 : tensor<256xf32>
    %cst_314 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1178 = stablehlo.broadcast_in_dim %cst_314, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1179 = stablehlo.multiply %1178, %1059 : tensor<64x4x16xf32>
    %cst_315 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1180 = stablehlo.broadcast_in_dim %cst_315, dims = [] : (tensor<f32>) -> tensor<256x64xf32>
    %1181 = stablehlo.multiply %1180, %1062 : tensor<256x64xf32>
    %cst_316 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1182 = stablehlo.broadcast_in_dim %cst_316, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1183 = stablehlo.multiply %1182, %1065 : tensor<64xf32>
    %cst_317 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1184 = stablehlo.broadcast_in_dim %cst_317, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1185 = stablehlo.multiply %1184, %1068 : tensor<64x4x16xf32>
    %cst_318 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1186 = stablehlo.broadcast_in_dim %cst_318, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1187 = stablehlo.multiply %1186, %1071 : tensor<64xf32>
    %cst_319 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1188 = stablehlo.broadcast_in_dim %cst_319, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1189 = stablehlo.multiply %1188, %1074 : tensor<64xf32>
    %cst_320 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1190 = stablehlo.broadcast_in_dim %cst_320, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1191 = stablehlo.multiply %1190, %1077 : tensor<64xf32>
    %cst_321 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1192 = stablehlo.broadcast_in_dim %cst_321, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1193 = stablehlo.multiply %1192, %1080 : tensor<64xf32>
    %cst_322 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1194 = stablehlo.broadcast_in_dim %cst_322, dims = [] : (tensor<f32>) -> tensor<4x16x64xf32>
    %1195 = stablehlo.multiply %1194, %1083 : tensor<4x16x64xf32>
    %cst_323 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1196 = stablehlo.broadcast_in_dim %cst_323, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1197 = stablehlo.multiply %1196, %1086 : tensor<64x4x16xf32>
    %cst_324 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1198 = stablehlo.broadcast_in_dim %cst_324, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %1199 = stablehlo.multiply %1198, %1089 : tensor<64x256xf32>
    %cst_325 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1200 = stablehlo.broadcast_in_dim %cst_325, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %1201 = stablehlo.multiply %1200, %1092 : tensor<256xf32>
    %cst_326 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1202 = stablehlo.broadcast_in_dim %cst_326, dims = [] : (tensor<f32>) -> tensor<64x4x16xf32>
    %1203 = stablehlo.multiply %1202, %1095 : tensor<64x4x16xf32>
    %cst_327 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1204 = stablehlo.broadcast_in_dim %cst_327, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %1205 = stablehlo.multiply %1204, %1098 : tensor<128x64xf32>
    %cst_328 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1206 = stablehlo.broadcast_in_dim %cst_328, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1207 = stablehlo.multiply %1206, %1101 : tensor<64xf32>
    %cst_329 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1208 = stablehlo.broadcast_in_dim %cst_329, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %1209 = stablehlo.multiply %1208, %1104 : tensor<64xf32>
    %cst_330 = stablehlo.constant dense<-1.000000e-01> : tensor<f32>
    %1210 = stablehlo.broadcast_in_dim %cst_330, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %1211 = stablehlo.multiply %1210, %1107 : tensor<32x64xf32>
    %1212 = stablehlo.add %arg52, %1109 : tensor<256x64xf32>
    %1213 = stablehlo.add %arg53, %1111 : tensor<64xf32>
    %1214 = stablehlo.add %arg54, %1113 : tensor<64x4x16xf32>
    %1215 = stablehlo.add %arg55, %1115 : tensor<64xf32>
    %1216 = stablehlo.add %arg56, %1117 : tensor<64xf32>
    %1217 = stablehlo.add %arg57, %1119 : tensor<64xf32>
    %1218 = stablehlo.add %arg58, %1121 : tensor<64xf32>
    %1219 = stablehlo.add %arg59, %1123 : tensor<4x16x64xf32>
    %1220 = stablehlo.add %arg60, %1125 : tensor<64x4x16xf32>
    %1221 = stablehlo.add %arg61, %1127 : tensor<64x256xf32>
    %1222 = stablehlo.add %arg62, %1129 : tensor<256xf32>
    %1223 = stablehlo.add %arg63, %1131 : tensor<64x4x16xf32>
    %1224 = stablehlo.add %arg64, %1133 : tensor<256x64xf32>
    %1225 = stablehlo.add %arg65, %1135 : tensor<64xf32>
    %1226 = stablehlo.add %arg66, %1137 : tensor<64x4x16xf32>
    %1227 = stablehlo.add %arg67, %1139 : tensor<64xf32>
    %1228 = stablehlo.add %arg68, %1141 : tensor<64xf32>
    %1229 = stablehlo.add %arg69, %1143 : tensor<64xf32>
    %1230 = stablehlo.add %arg70, %1145 : tensor<64xf32>
    %1231 = stablehlo.add %arg71, %1147 : tensor<4x16x64xf32>
    %1232 = stablehlo.add %arg72, %1149 : tensor<64x4x16xf32>
    %1233 = stablehlo.add %arg73, %1151 : tensor<64x256xf32>
    %1234 = stablehlo.add %arg74, %1153 : tensor<256xf32>
    %1235 = stablehlo.add %arg75, %1155 : tensor<64x4x16xf32>
    %1236 = stablehlo.add %arg76, %1157 : tensor<256x64xf32>
    %1237 = stablehlo.add %arg77, %1159 : tensor<64xf32>
    %1238 = stablehlo.add %arg78, %1161 : tensor<64x4x16xf32>
    %1239 = stablehlo.add %arg79, %1163 : tensor<64xf32>
    %1240 = stablehlo.add %arg80, %1165 : tensor<64xf32>
    %1241 = stablehlo.add %arg81, %1167 : tensor<64xf32>
    %1242 = stablehlo.add %arg82, %1169 : tensor<64xf32>
    %1243 = stablehlo.add %arg83, %1171 : tensor<4x16x64xf32>
    %1244 = stablehlo.add %arg84, %1173 : tensor<64x4x16xf32>
    %1245 = stablehlo.add %arg85, %1175 : tensor<64x256xf32>
    %1246 = stablehlo.add %arg86, %1177 : tensor<256xf32>
    %1247 = stablehlo.add %arg87, %1179 : tensor<64x4x16xf32>
    %1248 = stablehlo.add %arg88, %1181 : tensor<256x64xf32>
    %1249 = stablehlo.add %arg89, %1183 : tensor<64xf32>
    %1250 = stablehlo.add %arg90, %1185 : tensor<64x4x16xf32>
    %1251 = stablehlo.add %arg91, %1187 : tensor<64xf32>
    %1252 = stablehlo.add %arg92, %1189 : tensor<64xf32>
    %1253 = stablehlo.add %arg93, %1191 : tensor<64xf32>
    %1254 = stablehlo.add %arg94, %1193 : tensor<64xf32>
    %1255 = stablehlo.add %arg95, %1195 : tensor<4x16x64xf32>
    %1256 = stablehlo.add %arg96, %1197 : tensor<64x4x16xf32>
    %1257 = stablehlo.add %arg97, %1199 : tensor<64x256xf32>
    %1258 = stablehlo.add %arg98, %1201 : tensor<256xf32>
    %1259 = stablehlo.add %arg99, %1203 : tensor<64x4x16xf32>
    %1260 = stablehlo.add %arg100, %1205 : tensor<128x64xf32>
    %1261 = stablehlo.add %arg101, %1207 : tensor<64xf32>
    %1262 = stablehlo.add %arg102, %1209 : tensor<64xf32>
    %1263 = stablehlo.add %arg103, %1211 : tensor<32x64xf32>
    return %954, %957, %960, %963, %966, %969, %972, %975, %978, %981, %984, %987, %990, %993, %996, %999, %1002, %1005, %1008, %1011, %1014, %1017, %1020, %1023, %1026, %1029, %1032, %1035, %1038, %1041, %1044, %1047, %1050, %1053, %1056, %1059, %1062, %1065, %1068, %1071, %1074, %1077, %1080, %1083, %1086, %1089, %1092, %1095, %1098, %1101, %1104, %1107, %1212, %1213, %1214, %1215, %1216, %1217, %1218, %1219, %1220, %1221, %1222, %1223, %1224, %1225, %1226, %1227, %1228, %1229, %1230, %1231, %1232, %1233, %1234, %1235, %1236, %1237, %1238, %1239, %1240, %1241, %1242, %1243, %1244, %1245, %1246, %1247, %1248, %1249, %1250, %1251, %1252, %1253, %1254, %1255, %1256, %1257, %1258, %1259, %1260, %1261, %1262, %1263, %450 : tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<128x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<32x64xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<256x64xf32>, tensor<64xf32>, tensor<64x4x16xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<4x16x64xf32>, tensor<64x4x16xf32>, tensor<64x256xf32>, tensor<256xf32>, tensor<64x4x16xf32>, tensor<128x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<32x64xf32>, tensor<f32>
  }
  func.func private @_var(%arg0: tensor<16x32x64xf32>, %arg1: tensor<i32>) -> (tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_0 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<16x32x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<16x32x1xf32>) -> tensor<16x32x64xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<16x32x64xf32>
    %6 = chlo.square %5 : tensor<16x32x64xf32> -> tensor<16x32x64xf32>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<16x32x64xf32>
    %8 = stablehlo.multiply %7, %5 : tensor<16x32x64xf32>
    %9 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %10 = stablehlo.subtract %cst_2, %9 : tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%6 init: %cst_3) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %14 = stablehlo.divide %12, %13 : tensor<16x32x1xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.compare GT, %10, %cst_4, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_5 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %16 = call @_where(%15, %14, %cst_5) : (tensor<i1>, tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32x1xf32>
    return %16, %8, %10, %15 : tensor<16x32x1xf32>, tensor<16x32x64xf32>, tensor<f32>, tensor<i1>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<16x32x1xf32>, %arg2: tensor<f32>) -> tensor<16x32x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<16x32x1xf32>
    return %2 : tensor<16x32x1xf32>
  }
  func.func private @tril(%arg0: tensor<32x32xi1>) -> tensor<32x32xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<32x32xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<32x32xi32>
    %2 = stablehlo.add %0, %1 : tensor<32x32xi32>
    %3 = stablehlo.iota dim = 1 : tensor<32x32xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<32x32xi32>, tensor<32x32xi32>) -> tensor<32x32xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<32x32xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<32x32xi1>, tensor<32x32xi1>
    return %6 : tensor<32x32xi1>
  }
  func.func private @_where_0(%arg0: tensor<32x32xi1>, %arg1: tensor<16x4x32x32xf32>, %arg2: tensor<f32>) -> (tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>) {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<32x32xi1>) -> tensor<16x4x32x32xi1>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %2 = stablehlo.select %0, %arg1, %1 : tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>
    return %2, %0 : tensor<16x4x32x32xf32>, tensor<16x4x32x32xi1>
  }
  func.func private @take_along_axis(%arg0: tensor<16x32x128xf32>, %arg1: tensor<16x32x1xi32>) -> (tensor<16x32x1xf32>, tensor<16x32x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<16x32x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<16x32x1xi32>, tensor<16x32x1xi32>) -> tensor<16x32x1xi1>
    %c_0 = stablehlo.constant dense<128> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<16x32x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<16x32x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<16x32x1xi1>, tensor<16x32x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<16x32x1xi32>) -> tensor<16x32x1x1xi32>
    %c_1 = stablehlo.constant dense<127> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<16x32x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<16x32x1x1xi32>, tensor<16x32x1x1xi32>) -> tensor<16x32x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<16x32x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<16x32x1x1xi32>, tensor<16x32x1x1xi32>) -> tensor<16x32x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<16x32x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<16x32x1x1xi1>, tensor<i1>) -> tensor<16x32x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<16x32x128xf32>, tensor<16x32x1x1xi32>) -> tensor<16x32x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<16x32x1xi1>, tensor<16x32x1xf32>
    return %15, %5 : tensor<16x32x1xf32>, tensor<16x32x1x1xi32>
  }
  func.func private @_take(%arg0: tensor<16x32x1xf32>, %arg1: tensor<i32>) -> (tensor<16x32xf32>, tensor<1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.compare LT, %arg1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %arg1, %c_0 : tensor<i32>
    %2 = call @_where_1(%0, %1, %arg1) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<1xi32>
    %4 = stablehlo.convert %3 : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %6 = stablehlo.compare GE, %4, %5, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
    %7 = stablehlo.compare LE, %4, %c_1, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
    %8 = stablehlo.and %6, %7 : tensor<1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %9 = stablehlo.reduce(%8 init: %c_3) applies stablehlo.and across dimensions = [0] : (tensor<1xi1>, tensor<i1>) -> tensor<i1>
    %10 = "stablehlo.gather"(%arg0, %4) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [2], start_index_map = [2]>, indices_are_sorted = false, slice_sizes = array<i64: 16, 32, 1>}> : (tensor<16x32x1xf32>, tensor<1xi32>) -> tensor<16x32xf32>
    %11 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i1>) -> tensor<16x32xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x32xf32>
    %13 = stablehlo.select %11, %10, %12 : tensor<16x32xi1>, tensor<16x32xf32>
    return %13, %3 : tensor<16x32xf32>, tensor<1xi32>
  }
  func.func private @_where_1(%arg0: tensor<i1>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<i32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<i1>, tensor<i32>
    return %0 : tensor<i32>
  }
  func.func private @_take_2(%arg0: tensor<1xi32>, %arg1: tensor<16x32xf32>) -> tensor<16x32x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], inserted_window_dims = [2], scatter_dims_to_operand_dims = [2]>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<16x32x1xf32>, tensor<1xi32>, tensor<16x32xf32>) -> tensor<16x32x1xf32>
    return %1 : tensor<16x32x1xf32>
  }
  func.func private @take_along_axis_3(%arg0: tensor<16x32x1x1xi32>, %arg1: tensor<16x32x1xf32>) -> tensor<16x32x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x32x128xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<16x32x128xf32>, tensor<16x32x1x1xi32>, tensor<16x32x1xf32>) -> tensor<16x32x128xf32>
    return %1 : tensor<16x32x128xf32>
  }
  func.func private @_var_4(%arg0: tensor<16x32x64xf32>, %arg1: tensor<f32>, %arg2: tensor<i1>, %arg3: tensor<16x32x1xf32>) -> tensor<16x32x64xf32> {
    %0 = call @_where_5(%arg2, %arg3) : (tensor<i1>, tensor<16x32x1xf32>) -> tensor<16x32x1xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %2 = stablehlo.divide %0, %1 : tensor<16x32x1xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %5 = stablehlo.multiply %4, %arg0 : tensor<16x32x64xf32>
    %6 = stablehlo.negate %5 : tensor<16x32x64xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<16x32x64xf32>, tensor<f32>) -> tensor<16x32xf32>
    %8 = stablehlo.reshape %7 : (tensor<16x32xf32>) -> tensor<16x32x1xf32>
    %cst_1 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<16x32x1xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<16x32x1xf32>, tensor<f32>) -> tensor<16x32xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<16x32xf32>) -> tensor<16x32x64xf32>
    %13 = stablehlo.add %5, %12 : tensor<16x32x64xf32>
    return %13 : tensor<16x32x64xf32>
  }
  func.func private @_where_5(%arg0: tensor<i1>, %arg1: tensor<16x32x1xf32>) -> tensor<16x32x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x32x1xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<i1>, tensor<16x32x1xf32>
    return %1 : tensor<16x32x1xf32>
  }
  func.func private @_where_6(%arg0: tensor<16x4x32x32xi1>, %arg1: tensor<16x4x32x32xf32>) -> tensor<16x4x32x32xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x4x32x32xf32>
    %1 = stablehlo.select %arg0, %arg1, %0 : tensor<16x4x32x32xi1>, tensor<16x4x32x32xf32>
    return %1 : tensor<16x4x32x32xf32>
  }
}
