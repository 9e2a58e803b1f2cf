"""The errors as the user meets them."""

from pathlib import Path

import pytest

from shardc.errors import CODES, InfeasibleError, InputError, ShardcError

ROOT = Path(__file__).parents[2]


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = InputError("a is 3", where="train.py:41 (step)", help="use 2")
    assert str(error).splitlines() == [
        "error[SHARDC-180]: a is 3",
        "  --> train.py:41 (step)",
        "help: use 2",
    ]


def test_exit_codes_are_those_of_the_command() -> None:
    found = [kind.exit_code for kind in (InputError, InfeasibleError, ShardcError)]
    assert found == [2, 3, 4]


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_in_the_docs(code: str) -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    assert f"## {code}: {CODES[code]}" in page, "run tools/make_error_docs.py"
