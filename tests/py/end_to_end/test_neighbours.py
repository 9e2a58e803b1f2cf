"""A hundred neighbours of each class of programs that gave wrong numbers, interpreted."""

from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc.check.forms.engines import interpreter
from shardc.errors import MicrobatchError
from shardc.ir.pass_manager import run_passes
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.fuzz.neighbours import Step, astray, indices, loops
from tests.py.fuzz.non_finite import check_partial_sums
from tests.py.passes.on_devices import run_whole
from tests.py.programs import Program
from tests.py.split_programs import copy_of, normalized, run_split

TENS = range(10)  # each test takes ten programs
# Steps that are wrong if every factor and every divisor of a sum passes (`is_safe_factor`).
NOT_FINITE = [
    int(seed)
    for seed in """
    13 16 17 22 24 25 29 30 31 42 45 59 65 68 70 76 88 91 93 95 101 109 113 114 118 122 123 126
    127 142 143 149 151 152 155 157 165 170 171 176 183 186 189 197 198 201 208 214 219 224 230
    235 256 262 265 273 276 279 281 287 290 299 306 311 312 314 317 319 320 327 329 330 331 337
    339 350 355 357 359 362 365 371 374 377 378 386 400 401 407 409 418 422 434 435 441 442 449
    454 461 465
    """.split()
]


def whole(step: Step, args: tuple[Any, ...]) -> Any:
    module, values = normalized(Program(step, args, (0,)))
    return module, values, run_whole(module, values)


def agree(wanted: list[np.ndarray], found: list[np.ndarray], seed: int) -> None:
    for want, have in zip(wanted, found, strict=True):
        np.testing.assert_allclose(have, want, 1e-5, 1e-6, err_msg=f"seed {seed}")


@pytest.mark.parametrize("ten", TENS)
def test_narrow_counts_as_indices(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        module, values, wanted = whole(*indices(Random(seed)))
        run_passes(module, NORMALIZE)
        agree(wanted, run_whole(module, values), seed)


def cut_in_two(module: ir.Module) -> ir.Module | None:
    """The module in two microbatches of its argument 1; None if that is refused."""
    split, batch = copy_of(module), ((1,), (0,))
    try:
        run_passes(split, [*NORMALIZE, FissionLoops(*batch), SplitMicrobatches(2, *batch)])
    except MicrobatchError:
        return None
    return split


@pytest.mark.slow
@pytest.mark.parametrize("ten", TENS)
def test_loops_over_blocks_with_counters_that_wrap_around(ten: int) -> None:
    """Ten that can be cut: loops whose own counter is unsigned or wraps around are refused."""
    compared, seeds = 0, count(100 * ten)
    while compared < 10:
        seed = next(seeds)
        assert seed < 100 * ten + 40, "most loops can be cut"
        module, values, wanted = whole(*loops(Random(seed)))
        split = cut_in_two(module)
        if split is not None:
            agree(wanted, run_split(split, values, interpreter), seed)
            compared += 1


@pytest.mark.slow
@pytest.mark.parametrize("ten", TENS)
def test_loops_that_a_narrow_count_leads_astray(ten: int) -> None:
    """Their microbatches would need each other's rows: who takes the count for exact cuts them."""
    for seed in range(10 * ten, 10 * ten + 10):
        module, values, wanted = whole(*astray(Random(seed)))
        split = cut_in_two(module)
        if split is None:  # planned with one microbatch
            run_passes(module, NORMALIZE)
            agree(wanted, run_whole(module, values), seed)
        else:
            agree(wanted, run_split(split, values, interpreter), seed)


@pytest.mark.slow
@pytest.mark.parametrize("ten", TENS)
def test_partial_sums_and_factors_that_are_not_finite(ten: int) -> None:
    for seed in NOT_FINITE[10 * ten : 10 * ten + 10]:
        check_partial_sums(seed)
