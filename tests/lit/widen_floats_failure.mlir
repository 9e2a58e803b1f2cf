// RUN: not shardc-opt %s --passes='shardc-widen-floats{types=f32;f8}' 2>&1 | filecheck %s
// CHECK:      error[SHARDC-181]: 'f8' is not a float type that can be widened
// CHECK-NEXT: help: the types are: f16, bf16, f32

module {}
