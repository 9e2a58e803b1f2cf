"""Random steps of every kind, in random plans, compute what one device computes.

StableHLO's interpreter runs the programs of all devices, so that little is compiled. `tools/fuzz.py
steps` runs thousands of plans; `benchmarks/results` has what came of them.
"""

import pytest

from tests.py.fuzz.kinds import KINDS
from tests.py.fuzz.plans import check_seed

SEEDS = range(200, 202)
PLANS = 5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_a_step_hold(kind: str, seed: int) -> None:
    found = list(check_seed(kind, seed, PLANS, "nonfinite" if seed % 2 else "ordinary"))
    accepted = ("held", "roundings decide", "JAX has no derivative")
    assert [line for line in found if line["outcome"] not in accepted] == []
