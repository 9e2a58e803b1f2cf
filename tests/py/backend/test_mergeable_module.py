"""What is left of a stage program when JAX takes it in."""

from shardc.backend.mergeable_module import mergeable_module
from shardc.ir.context import parse

PROGRAM = """
module @step attributes {shardc.num_stages = 2 : i64} {
  sdy.mesh @stage1 = <["x"=2]>
  func.func private @half(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = sdy.sharding_constraint %a <@stage1, [{"x"}]> : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @stage1_forward(
      %a: tensor<4xf32> {shardc.value = "v3", sdy.sharding = #sdy.sharding<@stage1, [{"x"}]>})
      -> (tensor<4xf32> {shardc.value = "v4"}) attributes {shardc.kind = "forward"} {
    %0 = call @half(%a) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""
LOCAL = PROGRAM.replace('sdy.sharding_constraint %a <@stage1, [{"x"}]>', "stablehlo.abs %a")


def mergeable_text(text: str, name: str, *, local: bool) -> str:
    return str(parse(mergeable_module(text.encode(), name, local=local)))


def test_a_local_program_keeps_no_sharding_and_no_name_of_ours():
    text = mergeable_text(LOCAL, "stage1_forward", local=True)
    assert "sdy" not in text
    assert "shardc" not in text
    assert "func.func public @main" in text
    assert "func.func private @half" in text


def test_a_global_program_keeps_its_shardings_on_a_mesh_of_neutral_name():
    text = mergeable_text(PROGRAM, "stage1_forward", local=False)
    assert "shardc" not in text
    assert "stage1" not in text
    assert 'sdy.mesh @stage = <["x"=2]>' in text
    assert text.count('<@stage, [{"x"}]>') == 2


def test_programs_that_differ_in_names_only_become_equal():
    other = PROGRAM.replace("stage1", "stage7").replace("v3", "v30")
    for local, one, two in (
        (False, PROGRAM, other),
        (True, LOCAL, LOCAL.replace("stage1", "stage7")),
    ):
        assert mergeable_module(one.encode(), "stage1_forward", local=local) == mergeable_module(
            two.encode(), "stage7_forward", local=local
        )


def test_a_second_time_changes_nothing():
    once = mergeable_text(PROGRAM, "stage1_forward", local=False)
    assert mergeable_text(once, "main", local=False) == once
