"""The ids that connect stage programs: which value of the step an argument or result is."""

import functools
import re
from enum import Enum
from typing import NamedTuple

from shardc.errors import PlanError


class ValueKind(Enum):
    """The kinds of values that enter or leave a stage program."""

    ARGUMENT = "arg"  # of the user's function, or rows of one
    VALUE = "v"  # computed by another program
    ACCUMULATOR = "acc"  # argument and result of the program that adds to it
    INDEX = "index"  # the number of the microbatch


_TEXT = re.compile(r"(arg|v|acc)(\d+)|index")


class ValueId(NamedTuple):
    """Kind and number of a value; `str` gives its text in IR and plans, such as "arg3"."""

    kind: ValueKind
    number: int = 0

    def __str__(self) -> str:
        return self.kind.value + ("" if self.kind is ValueKind.INDEX else str(self.number))


INDEX = str(ValueId(ValueKind.INDEX))


def argument_id(number: int) -> str:
    """The id of an argument of the user's function, as text."""
    return str(ValueId(ValueKind.ARGUMENT, number))


def computed_id(number: int) -> str:
    """The id of a value that one program computes and another takes, as text."""
    return str(ValueId(ValueKind.VALUE, number))


def accumulator_id(number: int) -> str:
    """The id of an accumulator, as text."""
    return str(ValueId(ValueKind.ACCUMULATOR, number))


@functools.lru_cache(maxsize=1 << 16)
def value_id(text: str) -> ValueId:
    """Parses an id.

    Raises:
        PlanError: SHARDC-200, `text` is not an id.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise PlanError(
            f"'{text}' is not a value id",
            help="ids are arg3, v17, acc5 and index; export the program again from its source",
        )
    return ValueId(ValueKind(match[1] or "index"), int(match[2] or 0))


def is_argument(text: str) -> bool:
    """Whether the id is that of an argument of the user's function."""
    return value_id(text).kind is ValueKind.ARGUMENT


def is_accumulator(text: str) -> bool:
    """Whether the id is that of an accumulator."""
    return value_id(text).kind is ValueKind.ACCUMULATOR


def is_computed(text: str) -> bool:
    """Whether the id is that of a value that one program computes and another takes."""
    return value_id(text).kind is ValueKind.VALUE
