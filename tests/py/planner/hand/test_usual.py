"""The plans that people write by hand, beside the search's own."""

from shardc.planner.hand.usual import usual_plans
from tests.py.report.test_reading import CLUSTER, planned


def test_the_usual_plans_lay_arguments_out_as_people_do() -> None:
    specs = {each.name: each for each in usual_plans(planned("fsdp"), CLUSTER)}
    assert {"data parallel", "ZeRO-1", "FSDP", "tensor parallel"} <= specs.keys()
    up, momentum = (f"state['{tree}']['layers'][0]['up']" for tree in ("params", "momentum"))
    assert specs["data parallel"].shardings[up] == "-,-"
    assert specs["data parallel"].shardings["x"] == "data,-"
    zero = specs["ZeRO-1"].shardings
    assert (zero[up], zero[momentum]) == ("-,-", "-,data")
    assert specs["FSDP"].shardings[up] == "-,data"
    assert specs["tensor parallel"].shardings == {"x": "-,-", "y": "-,-"}
