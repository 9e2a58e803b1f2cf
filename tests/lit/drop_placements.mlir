// RUN: shardc-opt %s --passes=shardc-drop-placements | filecheck %s
// RUN: shardc-opt %s --passes=shardc-drop-placements,shardc-drop-placements | filecheck %s

// A value that is put into the host's memory and back stays on the device, and the place is named.
// What is returned goes to the host after the step: nothing is lost, and nothing said.
//       CHECK: shardc.placements = ["drop_placements.mlir:[[#]]"]
// CHECK-LABEL: func.func public @main
//       CHECK:   %[[SINE:.*]] = stablehlo.sine %arg0
//   CHECK-NOT:   annotate_device_placement
//       CHECK:   %[[SUM:.*]] = stablehlo.add %[[SINE]], %arg0
//  CHECK-NEXT:   return %[[SUM]]
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32> {mhlo.memory_kind = "pinned_host"}) {
  %y = stablehlo.sine %x : tensor<4xf32>
  %far = stablehlo.custom_call @annotate_device_placement(%y) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<4xf32>) -> tensor<4xf32>
  %near = stablehlo.custom_call @annotate_device_placement(%far) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<4xf32>) -> tensor<4xf32>
  %z = stablehlo.add %near, %x : tensor<4xf32>
  %out = stablehlo.custom_call @annotate_device_placement(%z) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %out : tensor<4xf32>
}
