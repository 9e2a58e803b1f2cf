"""Stages count as equal if they compute the same, wherever independent ops stand."""

from shardc.analysis.program.equal_stages import equal_stages, ordered
from shardc.ir.context import parse

STAGES = """
module {{
  func.func @stage0_forward(%a: tensor<4xf32> {{shardc.value = "v1"}})
      -> (tensor<4xf32> {{shardc.value = "v2"}}) attributes {{shardc.stage = 0 : i64}} {{
    %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %b = stablehlo.add %a, %one : tensor<4xf32>
    %c = stablehlo.maximum %b, %zero : tensor<4xf32>
    return %c : tensor<4xf32>
  }}
  func.func @stage1_forward(%x: tensor<4xf32> {{shardc.value = "v2"}})
      -> (tensor<4xf32> {{shardc.value = "v3"}}) attributes {{shardc.stage = 1 : i64}} {{
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.add %x, %one : tensor<4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
    %z = stablehlo.maximum {operands} : tensor<4xf32>
    return %z : tensor<4xf32>
  }}
}}
"""


def test_copies_of_constants_may_stand_anywhere():
    module = parse(STAGES.format(operands="%y, %zero"))
    with module.context:
        assert equal_stages(module.operation, 2) == [0, 0]
        assert equal_stages(module.operation, 2, in_order=True) == [0, 1]


def test_operands_may_not_change_places():
    module = parse(STAGES.format(operands="%zero, %y"))
    with module.context:
        assert equal_stages(module.operation, 2) == [0, 1]


LOOP = """
  func.func @stage{stage}_forward(%x: tensor<4xf32> {{shardc.value = "v{stage}"}})
      -> (tensor<4xf32> {{shardc.value = "v{next}"}}) attributes {{shardc.stage = {stage} : i64}} {{
    %start = stablehlo.constant dense<{first}> : tensor<i32>
    %end = stablehlo.constant dense<{last}> : tensor<i32>
    %0:2 = stablehlo.while(%i = %start, %y = %x) : tensor<i32>, tensor<4xf32>
     cond {{
      %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %k = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.tanh %y : tensor<4xf32>
      stablehlo.return %k, %z : tensor<i32>, tensor<4xf32>
    }}
    return %0#1 : tensor<4xf32>
  }}
"""


def test_it_matters_how_often_a_loop_runs_not_over_which_rows():
    rows = [(0, 2), (2, 4), (4, 6), (6, 9)]
    stages = [LOOP.format(stage=n, next=n + 1, first=a, last=b) for n, (a, b) in enumerate(rows)]
    module = parse("module {" + "".join(stages) + "}")
    with module.context:
        assert equal_stages(module.operation, 4) == [0, 1, 1, 3]


def test_ops_with_regions_stay_whole_and_unused_ops_are_kept():
    text = """func.func @f(%arg0: tensor<i32>) -> tensor<i32> {
  %unused = stablehlo.negate %arg0 : tensor<i32>
  %0:2 = stablehlo.while(%i = %arg0, %j = %arg0) : tensor<i32>, tensor<i32>
   cond {
    %1 = stablehlo.compare  LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    stablehlo.return %i, %j : tensor<i32>, tensor<i32>
  }
  return %0#1 : tensor<i32>
}"""
    lines = ordered(text).splitlines()
    names = ("while", "compare", "stablehlo.return", "  return", "negate")
    assert [name for line in lines for name in names if name in line] == [
        "while",
        "compare",
        "stablehlo.return",
        "stablehlo.return",
        "  return",
        "negate",
    ]
    assert len(lines) == len(text.splitlines())


SLICE = """
  func.func @stage{stage}_forward(%x: tensor<8x4xf32> {{shardc.value = "arg0"}})
      -> (tensor<{shape}xf32> {{shardc.value = "v{stage}"}})
      attributes {{shardc.stage = {stage} : i64}} {{
    %y = stablehlo.slice %x [{bounds}] : (tensor<8x4xf32>) -> tensor<{shape}xf32>
    return %y : tensor<{shape}xf32>
  }}
"""


def test_stages_cost_the_same_whichever_single_row_they_slice_out():
    slices = [
        ("0:1, 0:4", "1x4"),
        ("5:6, 0:4", "1x4"),  # another row, as of the keys of layers
        ("0:2, 0:4", "2x4"),
        ("2:4, 0:4", "2x4"),  # several rows: a block of other rows
        ("5:6, 1:3", "1x2"),
        ("7:8, 2:4", "1x2"),
        ("0:8:8, 0:4", "1x4"),
    ]
    stages = [
        SLICE.format(stage=stage, bounds=bounds, shape=shape)
        for stage, (bounds, shape) in enumerate(slices)
    ]
    module = parse("module {" + "".join(stages) + "}")
    with module.context:
        assert equal_stages(module.operation, len(slices)) == [0, 0, 2, 3, 4, 5, 6]
        in_order = equal_stages(module.operation, len(slices), in_order=True)
        assert in_order == [*range(len(slices))]
