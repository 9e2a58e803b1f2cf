"""Random programs under random plans compute what one device computes.

`tools/fuzz.py` runs thousands of them; what those found stands in `tests/py/fuzz/found.py`.
"""

from random import Random

import hypothesis
import jax
import pytest
from hypothesis import strategies as st

from tests.py.fuzz import found
from tests.py.fuzz.batch_sums import random_step
from tests.py.fuzz.check import (
    IllConditioned,
    check_batch_sums,
    check_shardings,
    check_training,
)
from tests.py.fuzz.draft import Source
from tests.py.fuzz.generate import random_source
from tests.py.fuzz.non_finite import check_partial_sums
from tests.py.fuzz.training import random_training


@hypothesis.given(st.randoms(use_true_random=False), st.integers(3, 8), st.integers(0, 1 << 16))
@hypothesis.settings(max_examples=10, derandomize=True, database=None)
def test_any_strategies_of_any_program(random: Random, num_lines: int, seed: int) -> None:
    with jax.enable_x64(True):
        source = random_source(random, num_lines)
    hypothesis.note(str(source))
    try:
        check_shardings(source, seed)
    except IllConditioned:
        hypothesis.reject()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "stages", "microbatches"), [(0, 2, 2), (5, 1, 2)])
def test_any_step_in_stages_and_microbatches(seed: int, stages: int, microbatches: int) -> None:
    with jax.enable_x64(True):
        training = random_training(Random(seed))
    assert training is not None
    check_training(training, seed, stages, microbatches)


@pytest.mark.parametrize("seed", range(8))
def test_sums_over_the_batch_on_the_way(seed: int) -> None:
    check_batch_sums(*random_step(Random(seed)), 2 + 2 * (seed % 2))


@pytest.mark.parametrize("seed", range(12))
def test_sums_over_the_batch_meet_infinities_and_nan(seed: int) -> None:
    check_partial_sums(seed)


@pytest.mark.parametrize("name", found.SHARDINGS)
def test_what_was_found_stays_mended(name: str) -> None:
    for seed in range(6):
        check_shardings(found.source(name), seed)


@pytest.mark.parametrize("name", found.TRAINING)
def test_what_was_found_in_training_stays_mended(name: str) -> None:
    check_training(found.training(name), 0, 1, 2)


def test_a_program_survives_being_printed() -> None:
    with jax.enable_x64(True):
        for seed in range(5):
            source = random_source(Random(seed))
            assert Source.parse(str(source)) == source
