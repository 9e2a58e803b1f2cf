"""What is known of a module is computed once, until a pass runs on it."""

import gc
import weakref
from dataclasses import dataclass

import pytest
from jax.extend.mlir import ir

from shardc.errors import InputError
from shardc.ir.context import parse
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import Pass, cached, run_passes
from shardc.ir.walk import functions, symbol

TEXT = "func.func @one() { return }"
asked: list[tuple[str, ...]] = []


@cached
def names(module: ir.Operation) -> tuple[str, ...]:
    asked.append(tuple(symbol(f) for f in functions(module)))
    return asked[-1]


@dataclass(frozen=True)
class Rename(Pass):
    """Renames the function, and then refuses the module if it is asked to."""

    name = "shardc-rename"
    to: str = "two"
    refuses: bool = False

    def apply(self, module: ir.Operation) -> None:
        for function in functions(module):
            function.attributes["sym_name"] = ir.StringAttr.get(self.to)
        if self.refuses:
            raise InputError("it is refused", help="ask for less")


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    asked.clear()


def test_an_analysis_runs_once_until_a_pass_runs() -> None:
    module = parse(TEXT)
    assert names(module) == names(module) == ("one",)
    assert len(asked) == 1
    run_passes(module, [Rename()])
    assert names(module) == names(module) == ("two",)
    assert len(asked) == 2


def test_a_pass_that_refuses_a_module_may_have_changed_it() -> None:
    module = parse(TEXT)
    assert names(module) == ("one",)
    with pytest.raises(InputError):
        run_passes(module, [Rename("three", refuses=True)])
    assert names(module) == ("three",)


def test_nothing_is_known_of_a_copy() -> None:
    module = parse(TEXT)
    names(module)
    copy = copy_module(module)
    run_passes(copy, [Rename()])
    assert (names(module), names(copy)) == (("one",), ("two",))


@pytest.mark.slow
def test_what_is_known_does_not_keep_a_module_alive() -> None:
    module = parse(TEXT)
    names(module)
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
