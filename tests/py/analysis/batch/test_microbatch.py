"""The states that the microbatch analysis gives to values, on small programs."""

import pytest

from shardc.analysis.batch.accumulations import analyse
from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.batch_state import LATE, Cut, FactorCut, Kind, from_factor, to_factor
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.microbatch_refusal import RefusalReason
from shardc.analysis.batch.step_program import program_of
from shardc.errors import MicrobatchError
from shardc.ir.context import Module, parse
from shardc.rules.op_rule import FactorKind, OpRule

ARGUMENTS = "%x: tensor<8x6xf32>, %w: tensor<6x6xf32>"


def module_of(body: str, arguments: str = ARGUMENTS) -> Module:
    """A module whose @main has this body."""
    return parse(f"func.func public @main({arguments}) {{ {body} return }}")


def flow_of(body: str, arguments: str = ARGUMENTS) -> BatchFlow:
    """The analysis of a function body, argument 0 cut along dim 0."""
    module = module_of(body, arguments)
    flow = analyse(program_of(module.operation), {0: 0})
    flow.keep = module  # type: ignore[attr-defined]  # the values live as long as their module
    return flow


def last(flow: BatchFlow) -> tuple[Kind, int]:
    """Kind and sweep of the last value."""
    return flow.states[-1].kind, flow.states[-1].sweep


DOT = """%y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
             : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
         %g = stablehlo.dot_general %y, %x, contracting_dims = [0] x [0]
             : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<6x6xf32> """


def test_a_product_over_features_varies_and_one_over_the_batch_is_partial() -> None:
    flow = flow_of(DOT)
    assert flow.states[2].cut == Cut(0)
    assert last(flow) == (Kind.PARTIAL, 0)
    assert flow.cut_flops == 2 * 2 * 8 * 6 * 6
    assert flow.parts == 8


LINEAR = [
    "%r = stablehlo.negate %g : tensor<6x6xf32>",
    "%r = stablehlo.add %g, %g : tensor<6x6xf32>",
    "%t = stablehlo.tanh %w : tensor<6x6xf32> %r = stablehlo.multiply %g, %t : tensor<6x6xf32>",
    "%b = stablehlo.constant dense<8.0> : tensor<6x6xf32> "
    "%r = stablehlo.divide %g, %b : tensor<6x6xf32>",
    "%r = stablehlo.transpose %g, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>",
    "%r = stablehlo.reshape %g : (tensor<6x6xf32>) -> tensor<36xf32>",
    "%r = stablehlo.slice %g [0:2, 0:6] : (tensor<6x6xf32>) -> tensor<2x6xf32>",
    "%r = stablehlo.convert %g : (tensor<6x6xf32>) -> tensor<6x6xf32>",
    "%r = stablehlo.concatenate %g, %g, dim = 0"
    " : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<12x6xf32>",
    "%z = stablehlo.constant dense<0.0> : tensor<6x6xf32> "
    "%r = stablehlo.add %z, %g : tensor<6x6xf32>",
    "%s = stablehlo.logistic %w : tensor<6x6xf32> "
    "%r = stablehlo.dot_general %s, %g, contracting_dims = [1] x [0]"
    " : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>",
]
NOT_LINEAR = [
    "%r = stablehlo.multiply %g, %w : tensor<6x6xf32>",  # %w may be infinite
    "%r = stablehlo.divide %g, %w : tensor<6x6xf32>",  # or zero
    "%r = stablehlo.dot_general %w, %g, contracting_dims = [1] x [0]"
    " : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>",
    "%r = stablehlo.convert %g : (tensor<6x6xf32>) -> tensor<6x6xf64>",  # has a larger range
    "%r = stablehlo.multiply %g, %g : tensor<6x6xf32>",
    "%r = stablehlo.divide %w, %g : tensor<6x6xf32>",
    "%r = stablehlo.add %w, %g : tensor<6x6xf32>",
    "%r = stablehlo.sqrt %g : tensor<6x6xf32>",
    "%r = stablehlo.maximum %g, %w : tensor<6x6xf32>",
    "%r = stablehlo.convert %g : (tensor<6x6xf32>) -> tensor<6x6xbf16>",
    "%r = stablehlo.convert %g : (tensor<6x6xf32>) -> tensor<6x6xi32>",
]


@pytest.mark.parametrize("op", LINEAR)
def test_linear_ops_keep_a_partial_sum(op: str) -> None:
    assert last(flow_of(DOT + op)) == (Kind.PARTIAL, 0)


@pytest.mark.parametrize("op", NOT_LINEAR)
def test_other_ops_need_the_sum(op: str) -> None:
    flow = flow_of(DOT + op)
    assert last(flow) == (Kind.INVARIANT, LATE)
    assert flow.sums == {3: 0}
    assert flow.obstacle is None


def test_the_sum_is_taken_before_what_only_rearranges_it() -> None:
    flow = flow_of(
        DOT
        + """%t = stablehlo.transpose %g, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
             %c = stablehlo.cosine %w : tensor<6x6xf32>
             %s = stablehlo.multiply %t, %c : tensor<6x6xf32>
             %r = stablehlo.sqrt %s : tensor<6x6xf32>"""
    )
    assert flow.sums == {3: 0}


def test_the_sum_is_taken_after_upcasts_and_additions() -> None:
    flow = flow_of(
        """%y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
             : (tensor<8x6xbf16>, tensor<6x6xbf16>) -> tensor<8x6xbf16>
           %g = stablehlo.dot_general %y, %x, contracting_dims = [0] x [0]
             : (tensor<8x6xbf16>, tensor<8x6xbf16>) -> tensor<6x6xbf16>
           %a = stablehlo.add %g, %g : tensor<6x6xbf16>
           %c = stablehlo.convert %a : (tensor<6x6xbf16>) -> tensor<6x6xf32>
           %t = stablehlo.transpose %c, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
           %r = stablehlo.sqrt %t : tensor<6x6xf32>""",
        ARGUMENTS.replace("f32", "bf16"),
    )
    assert flow.sums == {5: 0}


def test_a_maximum_over_the_batch_needs_every_example() -> None:
    flow = flow_of(
        """%init = stablehlo.constant dense<0.0> : tensor<f32>
           %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
             : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
           %r = stablehlo.reduce(%y init: %init) applies stablehlo.maximum across dimensions = [0]
             : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>"""
    )
    assert last(flow) == (Kind.INVARIANT, LATE)
    assert flow.wholes and flow.obstacle is None


def test_a_sum_that_starts_from_something_is_not_partial() -> None:
    flow = flow_of(
        """%init = stablehlo.constant dense<1.0> : tensor<f32>
           %r = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [0]
             : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>"""
    )
    assert last(flow) == (Kind.INVARIANT, LATE)


def test_a_reshape_that_takes_the_batch_apart_limits_the_microbatches() -> None:
    flow = flow_of(
        """%r = stablehlo.reshape %x : (tensor<8x6xf32>) -> tensor<2x4x6xf32>
           %t = stablehlo.transpose %r, dims = [1, 0, 2]
             : (tensor<2x4x6xf32>) -> tensor<4x2x6xf32>
           %b = stablehlo.reshape %t : (tensor<4x2x6xf32>) -> tensor<8x6xf32>"""
    )
    assert flow.states[-1].cut == Cut(0, outer=4)
    assert flow.parts == 2


def test_cuts_map_to_factors_and_back() -> None:
    kinds = (FactorKind.PASS_THROUGH,) * 3
    rule = OpRule((((0, 1), (2,)),), (((0,), (1,), (2,)),), (4, 6, 5), kinds)
    for (dim, outer), factor in {
        (0, 1): FactorCut(0, 1),
        (0, 2): FactorCut(0, 2),
        (0, 4): FactorCut(1, 1),
        (0, 12): FactorCut(1, 3),
        (1, 5): None,
    }.items():
        assert to_factor(rule, rule.operands[0], Cut(dim, outer)) == factor
        if factor:
            assert from_factor(rule, rule.operands[0], factor) == Cut(dim, outer)
    assert to_factor(rule, rule.operands[0], Cut(0, 3)) is None


def test_analysis_reports_an_obstacle_and_does_not_raise() -> None:
    module = parse(
        """func.func public @main(%w: tensor<6x6xf32> {tf.aliasing_output = 0 : i32},
                                  %x: tensor<8x6xf32>) -> tensor<6x6xf32> {
           %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
             : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
           %s = "stablehlo.sort"(%y) <{dimension = 0 : i64}> ({
           ^bb0(%a: tensor<f32>, %b: tensor<f32>):
             %below = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
             stablehlo.return %below : tensor<i1>
           }) : (tensor<8x6xf32>) -> tensor<8x6xf32>
           %g = stablehlo.dot_general %s, %x, contracting_dims = [0] x [0]
             : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<6x6xf32>
           return %g : tensor<6x6xf32> }"""
    )
    facts = batch_analysis(module.operation)
    assert facts.obstacle is not None and facts.obstacle.hindrance is RefusalReason.WHOLE_BATCH
    assert facts.batch_args == {1: 0} and facts.parts == 1 and facts.state == {0: 0}


def test_wrong_batch_arguments() -> None:
    module = parse("func.func public @main(%w: tensor<6x6xf32>, %x: tensor<8x3xf32>) { return }")
    facts = batch_analysis(module.operation, (0, 1))
    assert facts.obstacle is not None and facts.obstacle.hindrance is RefusalReason.NO_BATCH
    with pytest.raises(MicrobatchError, match="there is no argument 5"):
        batch_analysis(module.operation, (5,))


def test_a_comparator_that_uses_a_constant_from_outside_still_sorts_rows() -> None:
    flow = flow_of(
        DOT
        + """%c = stablehlo.constant dense<0.0> : tensor<f32>
        %s = "stablehlo.sort"(%y) <{dimension = 1 : i64}> ({
        ^bb0(%l: tensor<f32>, %r: tensor<f32>):
          %m = stablehlo.maximum %l, %c : tensor<f32>
          %p = stablehlo.compare LT, %m, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }) : (tensor<8x6xf32>) -> tensor<8x6xf32>"""
    )
    assert not flow.wholes
    assert flow.states[-1].cut == Cut(0)


def test_products_of_a_deep_model_are_heavy_however_many_there_are() -> None:
    layers, before = [], "%x"
    for n in range(600):  # each does less than two thousandths of the work
        layers.append(
            f"%y{n} = stablehlo.dot_general {before}, %w, contracting_dims = [1] x [0]"
            " : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>"
        )
        before = f"%y{n}"
    module = module_of("\n".join(layers))
    assert all(program_of(module.operation).heavy)
    facts = batch_analysis(module.operation)
    assert facts.flow is not None and facts.flow.batch_args == {0: 0} and facts.obstacle is None


def test_a_small_product_beside_large_ones_is_light() -> None:
    tiny = "%t = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]"
    tiny += " : (tensor<8x6xf32>, tensor<6xf32>) -> tensor<8xf32>"
    arguments = "%x: tensor<8x6xf32>, %w: tensor<6x6000xf32>, %v: tensor<6xf32>"
    large = "%y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]"
    large += " : (tensor<8x6xf32>, tensor<6x6000xf32>) -> tensor<8x6000xf32>"
    assert flow_of(f"{large} {tiny}", arguments).program.heavy == [True, False]
