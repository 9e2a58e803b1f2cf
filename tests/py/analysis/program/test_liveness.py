"""How long values are needed: free ops, loops, branches."""

from jax.extend.mlir import ir

from shardc.analysis.program.liveness import Liveness
from shardc.ir.context import make_context, parse
from shardc.ir.walk import body, main_function, planned_ops


class Read:
    """Liveness, ops and arguments of @main; keeps the module, which they do not."""

    def __init__(self, text: str) -> None:
        self.module = parse(text, make_context())
        function = main_function(self.module.operation)
        self.live = Liveness(function)
        self.ops = planned_ops(function)
        self.arguments = list(body(function).arguments)

    def last_uses(self, *values: ir.Value) -> list[int]:
        return [self.live.last_use(value, -1) for value in values]


def test_what_a_free_op_makes_needs_its_operand() -> None:
    of = Read("""
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = stablehlo.negate %a : tensor<4xf32>
        %1 = stablehlo.reshape %0 : (tensor<4xf32>) -> tensor<2x2xf32>
        %2 = stablehlo.negate %1 : tensor<2x2xf32>
        %3 = stablehlo.reshape %2 : (tensor<2x2xf32>) -> tensor<4xf32>
        return %3 : tensor<4xf32>
      }""")
    made = [op.results[0] for op in of.ops]
    assert of.last_uses(*of.arguments) == [0]
    assert of.last_uses(*made) == [2, 2, 3, -1]


LOOP = """
  func.func @main(%rows: tensor<4x8xf32>, %outside: tensor<8xf32>, %start: tensor<8xf32>,
      %i: tensor<i32>, %n: tensor<i32>) -> tensor<4x8xf32> {
    %zero = stablehlo.negate %i : tensor<i32>
    %0:3 = stablehlo.while(%j = %i, %v = %start, %all = %rows)
        : tensor<i32>, tensor<8xf32>, tensor<4x8xf32>
    cond {
      %go = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %1 = stablehlo.add %v, %outside : tensor<8xf32>
      %2 = stablehlo.reshape %1 : (tensor<8xf32>) -> tensor<1x8xf32>
      %3 = stablehlo.dynamic_update_slice %all, %2, %j, %zero
        : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %4 = stablehlo.add %j, %n : tensor<i32>
      stablehlo.return %4, %1, %3 : tensor<i32>, tensor<8xf32>, tensor<4x8xf32>
    }
    %5 = stablehlo.negate %0#2 : tensor<4x8xf32>
    return %5 : tensor<4x8xf32>
  }"""


def test_a_loop_needs_what_it_uses_from_outside_until_it_ends() -> None:
    of = Read(LOOP)
    rows, outside, start, i, n = of.arguments
    assert [op.name.split(".")[1] for op in of.ops] == (
        "negate while compare add reshape dynamic_update_slice add negate".split()
    )
    assert of.live.end(1) == 6
    assert of.live.end(3) == 3
    assert of.last_uses(outside, n, of.ops[0].results[0]) == [6, 6, 6]
    assert of.last_uses(rows, start, i) == [1, 1, 1]  # the loop has its own
    assert of.last_uses(of.ops[1].results[2]) == [7]


def test_what_goes_around_a_loop_is_needed_until_its_body_ends() -> None:
    of = Read(LOOP)
    carried = of.ops[1].regions[1].blocks[0].arguments
    assert of.last_uses(of.ops[3].results[0]) == [6]  # handed on to the next round
    assert of.last_uses(carried[1]) == [3]
    assert of.last_uses(carried[2]) == [6]  # updated where it lies


def test_a_branch_needs_values_while_it_may_run() -> None:
    of = Read("""
      func.func @main(%p: tensor<i1>, %a: tensor<8xf32>) -> tensor<8xf32> {
        %0 = "stablehlo.if"(%p) ({
          %1 = stablehlo.add %a, %a : tensor<8xf32>
          %2 = stablehlo.negate %1 : tensor<8xf32>
          stablehlo.return %2 : tensor<8xf32>
        }, {
          stablehlo.return %a : tensor<8xf32>
        }) : (tensor<i1>) -> tensor<8xf32>
        return %0 : tensor<8xf32>
      }""")
    assert of.live.end(0) == 2
    assert of.last_uses(of.arguments[1], of.ops[1].results[0]) == [2, 2]


# The first op is used by one elementwise op only, the second by two.
UPDATE = """
  func.func @main(%g: tensor<4xf32>, %m: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
      attributes {shardc.kind = "KIND"} {
    %0 = stablehlo.add %g, %m : tensor<4xf32>
    %1 = stablehlo.sqrt %0 : tensor<4xf32>
    %2 = stablehlo.negate %1 : tensor<4xf32>
    %3 = stablehlo.multiply %1, %m : tensor<4xf32>
    return %2, %3 : tensor<4xf32>, tensor<4xf32>
  }"""


def test_an_update_stores_nothing_that_one_elementwise_op_alone_uses() -> None:
    update, other = (Read(UPDATE.replace("KIND", kind)) for kind in ("update", "backward"))
    assert [update.live.is_fused(op) for op in update.ops] == [True, False, False, False]
    assert update.last_uses(update.arguments[0]) == [1]
    assert not any(other.live.is_fused(op) for op in other.ops)
    assert other.last_uses(other.arguments[0]) == [0]
