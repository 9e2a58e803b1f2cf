"""Ids of values survive their text, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import PlanError
from shardc.plan.value_id import INDEX, ValueId, ValueKind, is_argument, value_id

NUMBERED = [kind for kind in ValueKind if kind is not ValueKind.INDEX]


@given(st.sampled_from(NUMBERED), st.integers(0, 10**9))
def test_ids_survive_their_text(kind: ValueKind, number: int) -> None:
    found = ValueId(kind, number)
    assert value_id(str(found)) == found
    assert is_argument(str(found)) == (kind is ValueKind.ARGUMENT)


def test_the_index_has_no_number() -> None:
    assert value_id(INDEX) == ValueId(ValueKind.INDEX)


@pytest.mark.parametrize("text", ["", "arg", "arg-1", "argument3", "v1x", "index2", "accumulate1"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not a value id"):
        value_id(text)
