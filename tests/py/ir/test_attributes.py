"""Plan data as attributes of a module: typed, and the same data when it is read back."""

import math
from collections.abc import Iterator

import pytest
from jax.extend.mlir import ir

from shardc.cluster import Cluster
from shardc.cost.arrivals import Arrival
from shardc.ir.attributes import data_attr, data_of, named_attributes
from shardc.ir.context import parse
from shardc.plan.decisions import ValuePlan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.predicted import Asked, Collective, Held, StageReport
from shardc.plan.priced_work import Work

REPORT = StageReport(
    {FunctionKind.FORWARD: 0.1, FunctionKind.BACKWARD: 1e-300},
    peak_bytes=1 << 40,
    communication_bytes=0,
    num_flops=1 << 70,  # more than 64 bits
    objective=math.inf,
    lower_bound=0.1 + 0.2,
    held=(Held("stash", 4, "v3", "stage0_forward", 7), Held("inputs", 8)),
    collectives=(Collective("all_gather", ("x", "y"), "bfloat16", 16, 2.5),),
    folded_objective=0.5,
    asked={FunctionKind.FORWARD: (Asked(((Work("float32", 2.0, 8.0, 1), 3.0),), times=4.0),)},
)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with parse("module {}").context, ir.Location.unknown():
        yield


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(Cluster.parse("cpu8"), id="cluster"),
        pytest.param(Cluster.parse("alpa-megatron"), id="protocols by number of devices"),
        pytest.param(REPORT, id="report"),
        pytest.param(StageReport({}, 0, 0, 0, 0.0, 0.0), id="defaults"),
        pytest.param(ValuePlan("7.tanh1", "keep", 'a "quoted"\nop é', "", 512, 1e-9), id="text"),
        pytest.param(
            Arrival(Mesh((("x", 2),), (4, 6)), TensorSharding((("x",), ()), ("y",)), (8, 0)),
            id="arrival",
        ),
    ],
)
def test_data_is_read_back_from_the_attribute_and_from_its_text(data: object) -> None:
    attribute = data_attr(data)
    assert data_of(attribute, type(data)) == data
    assert ir.Attribute.parse(str(attribute)) == attribute


def test_fields_are_typed_and_absent_at_their_defaults() -> None:
    fields = named_attributes(data_attr(REPORT))
    assert "ideal_s" not in fields and "memory" not in fields
    kinds = {name: type(fields[name]) for name in ("objective", "peak_bytes", "seconds", "held")}
    assert kinds == {
        "objective": ir.FloatAttr,
        "peak_bytes": ir.IntegerAttr,
        "seconds": ir.DictAttr,
        "held": ir.ArrayAttr,
    }
    assert (
        str(fields["seconds"]) == "{backward = 1.000000e-300 : f64, forward = 1.000000e-01 : f64}"
    )


def test_what_is_no_plan_data_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="is not plan data"):
        data_attr(object())
