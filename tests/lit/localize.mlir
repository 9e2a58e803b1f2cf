// RUN: shardc-opt %s --passes=shardc-localize | filecheck %s

sdy.mesh @stage0 = <["x"=2, "y"=2]>
sdy.mesh @stage1 = <["z"=4]>

// Types become local; the attributes keep what the whole values were.
// CHECK-LABEL: func.func @matmul
//  CHECK-SAME:   %arg0: tensor<4x4xf32> {{{.*}}shardc.global_type = tensor<8x8xf32>}
//  CHECK-SAME:   -> (tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>, shardc.global_type = tensor<8x6xf32>})
//  CHECK-NEXT:   %[[PART:.*]] = stablehlo.dot_general {{.*}} (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
//  CHECK-NEXT:   "stablehlo.all_reduce"(%[[PART]])
//  CHECK-SAME:     channel_handle<handle = 1, type = 1>
//  CHECK-SAME:     dense<{{\[}}[0, 1], [2, 3]]>
//  CHECK-SAME:     use_global_device_ids
//  CHECK-NEXT:   ^bb0
//  CHECK-NEXT:     stablehlo.add
func.func @matmul(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {"y"}]>},
    %b: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}, {}]>})
    -> (tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}], unreduced={"y"}>]>}
    : (tensor<8x8xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = sdy.all_reduce {"y"} %0 out_sharding=<@stage0, [{"x"}, {}]> : tensor<8x6xf32>
  return %1 : tensor<8x6xf32>
}

// Another function runs on another mesh; the groups run over the devices in the order of the axes.
// CHECK-LABEL: func.func @other_mesh
//       CHECK:   "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0
//  CHECK-SAME:     dense<{{\[}}[0, 1, 2, 3]]>
//  CHECK-SAME:     (tensor<2xf32>) -> tensor<8xf32>
func.func @other_mesh(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage1, [{"z"}]>})
    -> tensor<8xf32> {
  %0 = sdy.all_gather [{"z"}] %a out_sharding=<@stage1, [{}]> : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// The minor axis is the fast one, whatever its place in the mesh: "y", then "x" inside it.
// CHECK-LABEL: func.func @axes_out_of_order
//       CHECK:   "stablehlo.all_gather"
//  CHECK-SAME:     dense<{{\[}}[0, 2, 1, 3]]>
func.func @axes_out_of_order(
    %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y", "x"}]>}) -> tensor<8xf32> {
  %0 = sdy.all_gather [{"y", "x"}] %a out_sharding=<@stage0, [{}]> : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// An axis moves from dim 0 to dim 1: dim 1 is split, dim 0 put together.
// CHECK-LABEL: func.func @all_to_all
//       CHECK:   "stablehlo.all_to_all"(%arg0) <{{{.*}}concat_dimension = 0 : i64, {{.*}}split_count = 2 : i64, split_dimension = 1 : i64
//  CHECK-SAME:     (tensor<4x8xf32>) -> tensor<8x4xf32>
func.func @all_to_all(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{}, {"x"}]>}) {
  %0 = sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@stage0, [{}, {"x"}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// A slice begins where the device's coordinate says; the coordinate is computed once.
// CHECK-LABEL: func.func @all_slice
//       CHECK:   stablehlo.partition_id
//       CHECK:   stablehlo.remainder {{.*}} : tensor<ui32>
//       CHECK:   %[[Y:.*]] = stablehlo.convert
//       CHECK:   stablehlo.multiply %[[Y]]
//       CHECK:   stablehlo.dynamic_slice %arg0, {{.*}}, sizes = [4]
//   CHECK-NOT:   stablehlo.partition_id
//       CHECK:   stablehlo.multiply %[[Y]]
//       CHECK:   return
func.func @all_slice(%a: tensor<8xf32>, %b: tensor<16xf32>)
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}]>},
        tensor<16xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}]>}) {
  %0 = sdy.all_slice [{"y"}] %a out_sharding=<@stage0, [{"y"}]> : tensor<8xf32>
  %1 = sdy.all_slice [{"y"}] %b out_sharding=<@stage0, [{"y"}]> : tensor<16xf32>
  return %0, %1 : tensor<8xf32>, tensor<16xf32>
}

// A maximum over a split dim is finished inside the op, among integers, of which nan is the greatest.
// CHECK-LABEL: func.func @maximum
//       CHECK:   %[[PART:.*]] = stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.maximum
//  CHECK-SAME:     (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
//       CHECK:   %[[NAN:.*]] = stablehlo.compare NE, %[[PART]], %[[PART]]
//       CHECK:   %[[KEY:.*]] = stablehlo.select %[[NAN]]
//       CHECK:   "stablehlo.all_reduce"(%[[KEY]])
//       CHECK:     stablehlo.maximum
//  CHECK-SAME:       tensor<i32>
//       CHECK:   stablehlo.bitcast_convert
func.func @maximum(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>})
    -> tensor<8xf32> {
  %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [0]
    {shardc.reduce_axes = ["x"]} : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// Filled constants are made in part, others are sliced, and an iota counts from the part's start.
// CHECK-LABEL: func.func @constants
//  CHECK-NEXT:   stablehlo.constant dense<1.0{{.*}}> : tensor<2xf32>
//  CHECK-NEXT:   %[[TABLE:.*]] = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
//       CHECK:   stablehlo.dynamic_slice %[[TABLE]]
//       CHECK:   %[[IOTA:.*]] = stablehlo.iota dim = 0 : tensor<2x4xi32>
//       CHECK:   %[[COUNT:.*]] = stablehlo.add %[[IOTA]]
//       CHECK:   stablehlo.convert %[[COUNT]] : (tensor<2x4xi32>) -> tensor<2x4xbf16>
func.func @constants() -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>},
    tensor<4xi32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}]>},
    tensor<4x4xbf16> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>}) {
  %0 = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>}
    dense<1.0> : tensor<4xf32>
  %1 = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}]>]>}
    dense<[1, 2, 3, 4]> : tensor<4xi32>
  %2 = stablehlo.iota dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>]>}
    : tensor<4x4xbf16>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xi32>, tensor<4x4xbf16>
}

// Partial sums of 16-bit floats are f32 until they are added up: parts that nearly cancel would
// leave little but their roundings.
// CHECK-LABEL: func.func @sums_of_bfloat16
//       CHECK:   %[[DOT:.*]] = stablehlo.dot_general {{.*}} : (tensor<8x4xbf16>, tensor<4x6xbf16>) -> tensor<8x6xf32>
//       CHECK:   %[[BIAS:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add {{.*}} : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>
//       CHECK:   %[[SUM:.*]] = "stablehlo.all_reduce"(%[[BIAS]])
//       CHECK:   (tensor<6xf32>) -> tensor<6xf32>
//       CHECK:   stablehlo.convert %[[SUM]] : (tensor<6xf32>) -> tensor<6xbf16>
//       CHECK:   %[[LEFT:.*]] = stablehlo.convert %[[DOT]] : (tensor<8x6xf32>) -> tensor<8x6xbf16>
//       CHECK:   return %{{.*}}, %[[LEFT]] : tensor<6xbf16>, tensor<8x6xbf16>
func.func @sums_of_bfloat16(
    %a: tensor<8x8xbf16> {sdy.sharding = #sdy.sharding<@stage0, [{}, {"y"}]>},
    %b: tensor<8x6xbf16> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}, {}]>})
    -> (tensor<6xbf16>, tensor<8x6xbf16> {sdy.sharding = #sdy.sharding<@stage0, [{}, {}], unreduced={"y"}>}) {
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{}, {}], unreduced={"y"}>]>}
    : (tensor<8x8xbf16>, tensor<8x6xbf16>) -> tensor<8x6xbf16>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
    {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{}], unreduced={"y"}>]>}
    : (tensor<8x6xbf16>, tensor<bf16>) -> tensor<6xbf16>
  %2 = sdy.all_reduce {"y"} %1 out_sharding=<@stage0, [{}]> : tensor<6xbf16>
  return %2, %0 : tensor<6xbf16>, tensor<8x6xbf16>
}

// A loop carries parts, partial sums among them. Where the device stands is found before the loop.
// CHECK-LABEL: func.func @loop
//       CHECK:   stablehlo.partition_id
//       CHECK:   stablehlo.while(%{{.*}} = %{{.*}}, %[[V:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}) : tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>
//       CHECK:   do {
//       CHECK:     %[[DOT:.*]] = stablehlo.dot_general %[[V]], %{{.*}} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
//       CHECK:     stablehlo.add %[[SUM]], %[[DOT]]
//       CHECK:     stablehlo.dynamic_slice
//       CHECK:     stablehlo.return %{{.*}} : tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>
//       CHECK:   "stablehlo.all_reduce"
func.func @loop(%n: tensor<i32>,
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {"y"}]>},
    %w: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}, {}]>})
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>}) {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %cst = stablehlo.constant dense<0.0> : tensor<f32>
  %table = stablehlo.constant dense<3.0> : tensor<8x8xf32>
  %zeros = stablehlo.broadcast_in_dim %cst, dims = []
    {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}], unreduced={"y"}>]>}
    : (tensor<f32>) -> tensor<8x4xf32>
  %0:3 = stablehlo.while(%j = %i, %v = %a, %sum = %zeros)
    : tensor<i32>, tensor<8x8xf32>, tensor<8x4xf32>
    attributes {sdy.sharding = #sdy.sharding_per_value<[<@stage0, []>,
      <@stage0, [{"x"}, {"y"}]>, <@stage0, [{"x"}, {}], unreduced={"y"}>]>}
  cond {
    %2 = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  } do {
    %2 = stablehlo.add %j, %one : tensor<i32>
    %3 = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0]
      {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}], unreduced={"y"}>]>}
      : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %4 = stablehlo.add %sum, %3
      {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}], unreduced={"y"}>]>}
      : tensor<8x4xf32>
    %5 = sdy.all_slice [{"x"}, {"y"}] %table out_sharding=<@stage0, [{"x"}, {"y"}]> : tensor<8x8xf32>
    %6 = stablehlo.multiply %v, %5
      {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {"y"}]>]>} : tensor<8x8xf32>
    stablehlo.return %2, %6, %4 : tensor<i32>, tensor<8x8xf32>, tensor<8x4xf32>
  }
  %1 = sdy.all_reduce {"y"} %0#2 out_sharding=<@stage0, [{"x"}, {}]> : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
