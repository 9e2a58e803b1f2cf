"""Every program holds the numerical contract under every shape of the pipeline.

A covering design of the table runs here; `make test-table` runs all of it.
"""

import pytest

from shardc.check.numerics import compare
from tests.py.programs import build
from tests.py.table import (
    CI_CELLS,
    ONE_MICROBATCH_ONLY,
    Cell,
    all_cells,
    behaviour,
    nearby,
    reference,
    verdict,
)

# In float32 one program of each kind that the contract has: float64 has shown that they are right.
FLOAT32_PROGRAMS = ("conv", "moe", "gpt_bf16")
FLOAT32_CELLS = [
    Cell("conv", 4, 4, "gpipe"),
    Cell("moe", 2, 2, "1f1b"),
    Cell("gpt_bf16", 2, 4, "1f1b"),
]


def test_the_cells_that_run_here_cover_the_table() -> None:
    """Every shape, and every program in a pipeline of several microbatches."""
    assert set(map(behaviour, CI_CELLS)) == set(map(behaviour, all_cells()))
    piped = {c.program for c in CI_CELLS if c.stages > 1 and c.microbatches > 1}
    assert piped == {c.program for c in all_cells()} - set(ONE_MICROBATCH_ONLY)
    assert {c.program for c in CI_CELLS if c.stages > 1} == {c.program for c in all_cells()}
    assert {build(name).direct for name in FLOAT32_PROGRAMS} == {"all", "loss", "none"}
    assert set(CI_CELLS) <= set(all_cells())


@pytest.mark.slow
@pytest.mark.parametrize("cell", CI_CELLS, ids=str)
def test_float64_results_equal_one_device(cell: Cell) -> None:
    plan, report = verdict(cell, "float64")
    assert report.passed, str(report)
    assert report.nonfinite_reference_values == 0
    assert plan.num_stages == cell.stages


@pytest.mark.slow
@pytest.mark.parametrize("cell", FLOAT32_CELLS, ids=str)
def test_float32_results_are_as_good_as_one_device(cell: Cell) -> None:
    _, report = verdict(cell, "float32")
    assert report.passed, str(report)


@pytest.mark.parametrize("program", FLOAT32_PROGRAMS)
def test_one_device_keeps_the_contract(program: str) -> None:
    exact, own = reference(program, "float64"), reference(program, "float32")
    report = compare(exact, own, own, build(program).kinds(list(exact)))
    assert report.passed, str(report)


@pytest.mark.slow
def test_one_device_makes_larger_errors_than_one_run_shows() -> None:
    """Roundings alone, on one device, break the rule that a single run would set; in which of these
    programs depends on the processor."""

    def holds(program: str) -> bool:
        exact, own = reference(program, "float64"), reference(program, "float32")
        kinds = build(program, "float32").kinds(list(exact))
        return all(compare(exact, own, other, kinds).passed for other in nearby(program))

    assert not all(map(holds, ("gpt_bf16", "gpt", "gpt_dropout")))
