"""Plans are data: JSON both ways, and meshes that know their axes."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import PlanError
from shardc.plan.decisions import FunctionSharding, OpSharding, Plan, StagePlan
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.notes import Note, NoteCode
from shardc.plan.predicted import Predicted

AXES = st.sampled_from("xyz")
SHARDINGS = st.builds(
    TensorSharding,
    st.lists(st.lists(AXES, max_size=2).map(tuple), max_size=3).map(tuple),
    st.lists(AXES, max_size=2).map(tuple),
)
MANY = st.lists(SHARDINGS, max_size=3).map(tuple)
FUNCTIONS = st.builds(
    FunctionSharding, MANY, MANY, st.lists(st.builds(OpSharding, MANY, MANY), max_size=2).map(tuple)
)
MESHES = st.lists(st.tuples(AXES, st.integers(1, 4)), max_size=2, unique_by=lambda a: a[0]).flatmap(
    lambda axes: st.permutations(range(math.prod(size for _, size in axes))).map(
        lambda ids: Mesh(tuple(axes), tuple(ids))
    )
)
FLOATS = st.floats(0, 1e6)
WORDS = st.text(max_size=5)
DATA = st.dictionaries(WORDS, st.one_of(WORDS, st.integers(0, 1 << 50), FLOATS), max_size=3)
STAGES = st.lists(st.builds(StagePlan, MESHES, st.just((0, 1))), min_size=1, max_size=2)
PLANS = STAGES.flatmap(
    lambda stages: st.builds(
        Plan,
        num_stages=st.just(len(stages)),
        num_microbatches=st.integers(1, 64),
        schedule=st.sampled_from(["gpipe", "1f1b"]),
        stages=st.just(tuple(stages)),
        shardings=st.dictionaries(st.text(max_size=5), FUNCTIONS, max_size=2),
        predicted=st.builds(
            Predicted, FLOATS, st.integers(0, 1 << 50), st.integers(0, 1 << 50), FLOATS, FLOATS
        ),
        objective=FLOATS,
        lower_bound=FLOATS,
        planning_time_s=FLOATS,
        notes=st.lists(st.builds(Note, st.sampled_from(NoteCode), DATA), max_size=2).map(tuple),
    )
)


@pytest.mark.slow
@given(plan=PLANS)
def test_plan_survives_json(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(path)
    assert Plan.load(path) == plan


@pytest.mark.parametrize("text", ["", "{", "{}", '{"num_stages": "two"}'])
def test_what_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    assert caught.value.code == "SHARDC-200"


def test_a_mesh_knows_its_axes() -> None:
    mesh = Mesh((("x", 2), ("y", 4)), tuple(range(8)))
    assert mesh.num_shards(("x", "y")) == 8
    assert mesh.num_shards(()) == 1
    with pytest.raises(PlanError, match="no axis 'z'") as caught:
        mesh.size("z")
    assert caught.value.code == "SHARDC-110"
