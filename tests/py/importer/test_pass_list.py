"""A list of passes says what it says, or is refused with the name of what is wrong."""

from dataclasses import dataclass

import pytest

from shardc.errors import InputError
from shardc.importer.pass_list import parse_passes, split_list
from shardc.ir.pass_manager import Pass


@dataclass(frozen=True)
class Sample(Pass):
    """A pass with an option of each type."""

    name = "sample"

    count: int
    dims: tuple[int, ...] = ()
    words: tuple[str, ...] = ("x",)
    fast: bool = False
    seconds: float | None = 1.0
    title: str = ""


KNOWN: dict[str, type[Pass]] = {"sample": Sample}


def test_options_become_fields_by_their_types() -> None:
    text = "sample{count=3 dims=1;2 words=a;b fast=true seconds=none title='two words'}"
    assert parse_passes(text + ",sample{count=0}", KNOWN) == (
        Sample(3, (1, 2), ("a", "b"), True, None, "two words"),
        Sample(0),
    )


def test_passes_of_mlir_are_known_by_name_wherever_they_run() -> None:
    found = parse_passes("canonicalize, sdy-populate-op-sharding-rules,func.func(cse)", KNOWN)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simple", "there is no pass 'simple'"),
        ("sample", "needs the option 'count'"),
        ("sample{count=many}", "'many' is not a value of option 'count'"),
        ("sample{count=1 fast=maybe}", "'maybe' is not a value of option 'fast'"),
        ("sample{size=1}", "has no option 'size'"),
        ("sample{count=1", "do not match"),
        ("sample}count=1{", "do not match"),
    ],
)
def test_a_wrong_list_of_passes_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_passes(text, KNOWN)
    assert caught.value.code == "SHARDC-181"


def test_commas_in_brackets_separate_nothing() -> None:
    assert split_list("a,b{c=1,2 d=3}, func.func(e,f) ,") == ["a", "b{c=1,2 d=3}", "func.func(e,f)"]
