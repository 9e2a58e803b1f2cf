"""What the lowering refuses, and the words in which it does."""

import pytest

from shardc.errors import PlanError
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.passes.insert_reshards import InsertReshards
from shardc.passes.localize import Localize

X = '#sdy.sharding<@mesh, [{"x"}]>'
WHOLE = "#sdy.sharding<@mesh, [{}]>"
SUM = '#sdy.sharding<@mesh, [{}], unreduced={"x"}>'


def result(sharding: str) -> str:
    """The attribute of an op whose only result lies like `sharding`."""
    return f"sdy.sharding = #sdy.sharding_per_value<[{sharding.replace('#sdy.sharding', '')}]>"


def function(argument: str, body: str, returned: str = WHOLE) -> str:
    """@main of one vector, on a mesh with the axis x."""
    return f"""sdy.mesh @mesh = <["x"=2, "y"=2]>
    sdy.mesh @other = <["x"=2]>
    func.func @main(%a: tensor<8xf32> {{sdy.sharding = {argument}}})
        -> (tensor<8xf32> {{sdy.sharding = {returned}}}) {{
      {body}
      return %0 : tensor<8xf32>
    }}"""


REFUSED = {
    "it is not linear in partial sums over 'x'": function(
        SUM, f"%0 = stablehlo.exponential %a {{{result(SUM)}}} : tensor<8xf32>", SUM
    ),
    "its result is a partial sum over ['x'], not []": function(
        SUM, f"%0 = stablehlo.negate %a {{{result(WHOLE)}}} : tensor<8xf32>"
    ),
    "operands and results are split in different ways": function(
        X, f"%0 = stablehlo.negate %a {{{result(WHOLE)}}} : tensor<8xf32>"
    ),
    "there is no sharding rule for it, so it needs whole operands": function(
        X,
        f"%0 = stablehlo.custom_call @unknown(%a) {{{result(WHOLE)}}}"
        " : (tensor<8xf32>) -> tensor<8xf32>",
    ),
    "its values are no partial sums": function(
        WHOLE, f"%0 = stablehlo.constant {{{result(SUM)}}} dense<1.0> : tensor<8xf32>", SUM
    ),
    "a reshard has not been lowered to collectives": function(
        X, "%0 = sdy.reshard %a <@mesh, [{}]> : tensor<8xf32>"
    ),
    "result 0 of @main does not have the sharding of its attribute": function(
        X, f"%0 = stablehlo.negate %a {{{result(X)}}} : tensor<8xf32>", WHOLE
    ),
    "the values of @main lie on several meshes: mesh, other": function(
        X, f"%0 = stablehlo.negate %a {{{result(X).replace('mesh', 'other')}}} : tensor<8xf32>", X
    ),
    "a value of shape (6,) does not divide into [4] parts": function(
        '#sdy.sharding<@mesh, [{"x", "y"}]>',
        f"%0 = stablehlo.negate %a {{{result(X)}}} : tensor<8xf32>",
        X,
    ).replace("8xf32", "6xf32"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_localize_refuses(message: str) -> None:
    with pytest.raises(PlanError) as error:
        run_passes(parse(REFUSED[message]), [Localize()])
    assert message in error.value.message
    assert error.value.code == "SHARDC-201"
    assert error.value.help


def test_an_op_that_reduces_itself_must_say_over_which_axes() -> None:
    text = function(
        X,
        """%c = stablehlo.constant dense<0.0> : tensor<f32>
        %m = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [0]
          : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
        %0 = stablehlo.broadcast_in_dim %m, dims = [] : (tensor<f32>) -> tensor<8xf32>""",
    )
    with pytest.raises(PlanError, match=r"must all-reduce its result over \['x'\], not \[\]"):
        run_passes(parse(text), [Localize()])


def test_a_sharding_of_another_rank_is_refused() -> None:
    wanted = '#sdy.sharding<@mesh, [{"x"}, {}]>'
    text = function(
        X, f"%0 = stablehlo.negate %a {{shardc.in_shardings = [{wanted}]}} : tensor<8xf32>"
    )
    with pytest.raises(PlanError, match="has 1 dims, but its planned sharding has 2"):
        run_passes(parse(text), [InsertReshards()])
