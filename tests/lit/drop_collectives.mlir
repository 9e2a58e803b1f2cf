// RUN: shardc-opt %s --passes=shardc-drop-collectives | filecheck %s
// RUN: shardc-opt %s --passes=shardc-drop-collectives,shardc-drop-collectives | filecheck %s

// What `jax.shard_map` over one device leaves: each collective gives back what it was given.
// CHECK-LABEL: func.func @one_device(%arg0: tensor<4x4xf32>)
//  CHECK-NEXT:   %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<ui32>
//  CHECK-NEXT:   %[[SUM:.*]] = stablehlo.add %arg0, %arg0
//  CHECK-NEXT:   return %arg0, %[[SUM]], %[[ZERO]]
module attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @one_device(%a: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = "stablehlo.collective_permute"(%0) <{source_target_pairs = dense<0> : tensor<1x2xi64>}> : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.partition_id : tensor<ui32>
    %4 = stablehlo.add %1, %2 : tensor<4x4xf32>
    return %2, %4, %3 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<ui32>
  }
}
