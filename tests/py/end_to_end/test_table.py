"""Every program holds the numerical contract under every shape of the pipeline.

The pairwise part of the table runs here; `make test-table` runs all of it.
"""

import pytest

from shardc.check.numerics import compare
from tests.py.programs import build
from tests.py.table import (
    Cell,
    all_cells,
    nearby,
    pairs,
    pairwise,
    reference,
    verdict,
)

CI_CELLS = pairwise(all_cells())
# In float32 a few: float64 has shown that the programs are right.
FLOAT32_PROGRAMS = ("gpt_sgd", "gpt_bf16", "moe", "conv")
FLOAT32_CELLS = [c for c in CI_CELLS if c.program in FLOAT32_PROGRAMS and c.stages == 2]


def test_the_subset_has_every_pair_of_the_table() -> None:
    assert {p for c in CI_CELLS for p in pairs(c)} == {p for c in all_cells() for p in pairs(c)}
    assert len(CI_CELLS) < len(all_cells()) / 4


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
