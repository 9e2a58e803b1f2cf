"""Infinities, nan, zeros and subnormal numbers among the arguments of a program, and how results
that have them are compared."""

from random import Random
from typing import Any

import jax
import numpy as np

from shardc.check.forms.engines import interpreter
from shardc.ir.pass_manager import run_passes
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.fuzz import partial_sums
from tests.py.passes.on_devices import run_whole
from tests.py.programs import Program
from tests.py.split_programs import copy_of, normalized, run_split

EXTREMES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40)
DRAWS = 6  # of arguments for one program


def same(want: np.ndarray, have: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Whether two results have the same nan and infinities, and elsewhere nearly the same numbers.

    Args:
        tolerance: of the largest finite magnitude; numbers below the smallest normal one may be
            flushed to zero.
    """
    want, have = np.asarray(want), np.asarray(have)
    if want.shape != have.shape or want.dtype != have.dtype:
        return False
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(want, have))
    if not all(
        np.array_equal(holds(want), holds(have)) for holds in (np.isnan, np.isposinf, np.isneginf)
    ):
        return False
    finite = np.isfinite(want)
    a, b = want[finite].astype(np.float64), have[finite].astype(np.float64)
    limit = tolerance * np.abs(a).max(initial=0.0) + 1e-37
    return bool(np.all(np.abs(a - b) <= limit))


def with_extremes(tree: Any, random: Random) -> Any:
    """Float leaves with some numbers replaced by extreme ones; rows of zeros are more frequent."""

    def changed(leaf: np.ndarray) -> np.ndarray:
        if leaf.dtype.kind != "f":
            return leaf
        array = np.array(leaf)
        flat = array.reshape(-1)
        for _ in range(random.choice([0, 0, 1, 2])):
            flat[random.randrange(flat.size)] = random.choice(EXTREMES)
        if array.ndim > 0 and random.random() < 0.4:
            start = random.randrange(len(array) + 1)
            array[start : start + random.randrange(len(array) + 1)] = 0
        return array

    return jax.tree.map(changed, tree)


def check_partial_sums(seed: int) -> None:
    """A step of `partial_sums` in microbatches, by the definition of the split, against the whole
    batch; both in the interpreter of StableHLO, which computes what is written.

    Raises:
        AssertionError: the results differ, or have their infinities and nan in other places.
        ShardcError: shardc refuses.
    """
    random = Random(seed)
    step, args = partial_sums.random_step(random), partial_sums.arguments(random)
    module, _ = normalized(Program(step, args, (0,)))
    batch = (len(args[0]),), (0,)
    cut = copy_of(module)
    run_passes(cut, [FissionLoops(*batch), SplitMicrobatches(random.choice([2, 4]), *batch)])
    for draw in range(DRAWS):
        values = [np.asarray(x) for x in jax.tree.leaves(with_extremes(args, random))]
        with np.errstate(invalid="ignore", over="ignore"):
            found = run_split(cut, values, interpreter)
        for want, have in zip(run_whole(module, values), found, strict=True):
            assert same(want, have, 0.02), f"draw {draw}: {want}\nis wanted, not\n{have}"
