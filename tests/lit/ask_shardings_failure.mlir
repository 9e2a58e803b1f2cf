// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"v\": \"x\"}}]"}' 2>&1 | filecheck %s --check-prefix=NAME
// NAME:      error[SHARDC-209]: the pattern 'v' of a hand-written plan matches no argument
// NAME-NEXT: help: write a pattern such as 'params.*.kernel' for 'w'

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"values\": {\"sort\": \"x\"}}]"}' 2>&1 | filecheck %s --check-prefix=OP
// OP:      error[SHARDC-209]: the pattern 'sort' of a hand-written plan matches no op

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"*\": \"-\", \"w\": \"x\"}}]"}' 2>&1 | filecheck %s --check-prefix=LATE
// LATE:      error[SHARDC-209]: the pattern 'w' of a hand-written plan matches only arguments that earlier patterns match
// LATE-NEXT: help: put it before the one that matches 'w': the first matching pattern wins

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"values\": {\"tan*\": \"x\", \"tanh\": \"-,x\"}}]"}' 2>&1 | filecheck %s --check-prefix=LATE_OP
// LATE_OP:      error[SHARDC-209]: the pattern 'tanh' of a hand-written plan matches only ops that earlier patterns match

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"w\": \"x,x\"}}]"}' 2>&1 | filecheck %s --check-prefix=TWICE
// TWICE:      error[SHARDC-203]: in a hand-written plan, the pattern 'w' wants 'x,x', which names the axis 'x' twice

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"w\": \"y\"}}]"}' 2>&1 | filecheck %s --check-prefix=AXIS
// AXIS:      error[SHARDC-110]: stage 0 wants argument 'w' split over 'y', and its mesh has x

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"w\": \"-,x\"}}]"}' 2>&1 | filecheck %s --check-prefix=UNEVEN
// UNEVEN:      error[SHARDC-203]: argument 'w' of shape (64, 6) is to be split as '-,x' in stage 0, and 6 does not divide into 4 parts

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"shardings\": {\"w\": \"-,-,x\"}}]"}' 2>&1 | filecheck %s --check-prefix=DIMS
// DIMS:      error[SHARDC-203]: argument 'w' has 2 dims, and stage 0 wants it as '-,-,x'

// RUN: not shardc-opt %s '--passes=shardc-ask-shardings{stages="[{\"layers\": {}}]"}' 2>&1 | filecheck %s --check-prefix=JSON
// JSON:      error[SHARDC-206]: the stages are not those of a hand-written plan
module attributes {
    shardc.num_stages = 1 : i64,
    shardc.arguments = [{donated = false, name = "w", stage = 0 : i64, type = tensor<64x6xf32>}]} {
  sdy.mesh @stage0 = <["x"=4]>
  func.func @stage0_forward(%w: tensor<64x6xf32> {shardc.value = "arg0"})
      -> (tensor<64x6xf32> {shardc.value = "v1"})
      attributes {shardc.kind = "forward", shardc.round = 0 : i64, shardc.stage = 0 : i64} {
    %y = stablehlo.tanh %w : tensor<64x6xf32>
    return %y : tensor<64x6xf32>
  }
}
