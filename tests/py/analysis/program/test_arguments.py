"""Which arguments are state, and which may hold the batch."""

from jax.extend.mlir import ir

from shardc.analysis.program.arguments import state_arguments
from shardc.ir.context import parse
from shardc.ir.walk import main_function


def function(text: str) -> tuple[ir.Module, ir.Operation]:
    """A module (to be kept alive) and its main function."""
    module = parse(text)
    return module, main_function(module.operation)


def test_donated_arguments_are_state() -> None:
    module, main = function(
        """func.func public @main(%a: tensor<4xf32>,
                                  %b: tensor<2xf32> {tf.aliasing_output = 1 : i32})
             -> (tensor<4xf32>, tensor<2xf32>) { return %a, %b : tensor<4xf32>, tensor<2xf32> }"""
    )
    assert module and state_arguments(main) == {1: 1}


def test_a_donor_takes_the_first_free_result_of_its_type() -> None:
    module, main = function(
        """func.func public @main(%a: tensor<4xf32> {jax.buffer_donor = true},
                                  %b: tensor<4xf32> {tf.aliasing_output = 0 : i32},
                                  %c: tensor<7xf32> {jax.buffer_donor = true})
             -> (tensor<4xf32>, tensor<4xf32>) { return %a, %b : tensor<4xf32>, tensor<4xf32> }"""
    )
    assert module and state_arguments(main) == {0: 1, 1: 0}


def test_without_donation_and_names_a_run_of_equal_types_is_state() -> None:
    module, main = function(
        """func.func public @main(%w: tensor<3x4xf32>, %b: tensor<4xf32>, %x: tensor<8x3xf32>)
             -> (tensor<3x4xf32>, tensor<4xf32>, tensor<f32>) {
             %loss = stablehlo.constant dense<0.0> : tensor<f32>
             return %w, %b, %loss : tensor<3x4xf32>, tensor<4xf32>, tensor<f32> }"""
    )
    assert module and state_arguments(main) == {0: 0, 1: 1}


def test_with_names_only_a_whole_structure_is_state() -> None:
    module, main = function(
        """func.func public @main(%w: tensor<3xf32> {shardc.name = "state['w']"},
                                  %b: tensor<4xf32> {shardc.name = "state['b']"},
                                  %x: tensor<3xf32> {shardc.name = "batch['x']"},
                                  %y: tensor<5xf32> {shardc.name = "batch['y']"})
             -> (tensor<3xf32> {jax.result_info = "result[0]['w']"},
                 tensor<4xf32> {jax.result_info = "result[0]['b']"},
                 tensor<3xf32> {jax.result_info = "result[1]['x']"}) {
             return %w, %b, %x : tensor<3xf32>, tensor<4xf32>, tensor<3xf32> }"""
    )
    assert module and state_arguments(main) == {0: 0, 1: 1}
