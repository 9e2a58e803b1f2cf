"""A pipeline by hand as data: what it says, and what it refuses before there is a program."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import InputError
from shardc.plan.stages_spec import StageSpec, StagesSpec, first_layers

WORDS = st.text("xy-?*,", min_size=1, max_size=5).filter(
    lambda words: max(words.count("x"), words.count("y")) < 2
)
PATTERNS = st.dictionaries(st.text("ab*.", min_size=1, max_size=4), WORDS, max_size=3)
STAGES = st.builds(
    StageSpec,
    layers=st.none() | st.integers(1, 9),
    mesh=st.none() | st.tuples(st.integers(1, 8), st.integers(1, 8)),
    shardings=PATTERNS,
    values=PATTERNS,
)
SPECS = st.builds(
    StagesSpec,
    version=st.just(1),
    stages=st.lists(STAGES, min_size=1, max_size=4).map(tuple),
    microbatches=st.integers(1, 99),
    shardings=PATTERNS,
)


@given(SPECS)
def test_spec_survives_json(spec: StagesSpec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=StagesSpec) == spec


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_counts_and_numbers_of_layers_say_the_same(counts: list[int]) -> None:
    firsts = [sum(counts[:n]) for n in range(len(counts))]
    texts = [f"{a}-{a + n - 1}" for a, n in zip(firsts, counts, strict=True)]
    for layers in (counts, texts, [counts[0], *texts[1:]]):
        spec = StagesSpec(1, tuple(StageSpec(each) for each in layers))
        assert first_layers(spec) == (sum(counts), tuple(firsts))


def test_patterns_of_a_stage_come_before_those_of_all() -> None:
    spec = StagesSpec(1, (StageSpec(shardings={"b": "x"}),), shardings={"a": "-", "b": "-"})
    assert list(spec.of_stage(0).shardings.items()) == [("b", "x"), ("a", "-")]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (["0-3", "2-5"], "stage 1 repeats layers 2-3"),
        (["0,0", "1"], "stage 0 repeats layers 0"),
        (["0-1", "4-5"], "stage 1 has layers 4-5, but no stage before it has layers 2-3"),
        (["2-3", "0-1"], "stage 0 has layers 2-3, but no stage before it has layers 0-1"),
        ([2, 0], "stage 1 has 0 layers"),
        ([2, None], "stage 1 does not give its layers"),
        (["3-1"], "'3-1' does not name layers"),
        (["some"], "'some' does not name layers"),
    ],
)
def test_layers_twice_or_not_at_all_are_refused(layers: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        first_layers(StagesSpec(1, tuple(StageSpec(each) for each in layers)))
    assert refused.value.code == "SHARDC-208"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "SHARDC-206"),
        ('{"stages": [{}]}', "SHARDC-206"),  # no version
        ('{"version": 2, "stages": [{}]}', "SHARDC-206"),
        ('{"version": 1, "stages": []}', "SHARDC-206"),
        ('{"version": 1, "stages": [{"layer": 2}]}', "SHARDC-206"),
        ('{"version": 1, "stages": [{}], "microbatches": 0}', "SHARDC-206"),
        ('{"version": 1, "stages": [{"mesh": [0, 2]}]}', "SHARDC-206"),
        ('{"version": 1, "stages": [{"mesh": [2, 2], "devices": [0, 1]}]}', "SHARDC-207"),
        ('{"version": 1, "stages": [{"shardings": {"*.up": "x,-,x?"}}]}', "SHARDC-203"),
        ('{"version": 1, "stages": [{}], "values": {"tanh": "x*x"}}', "SHARDC-203"),
    ],
)
def test_files_that_are_no_plan_by_hand(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        StagesSpec.load(path)
    assert (refused.value.code, refused.value.where) == (code, str(path))
    assert refused.value.help
