"""Runs a random program under a random plan, and compares it with one device."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.extend.mlir import ir

import shardc
from shardc import compiler
from shardc.check.forms.engines import XLA_OPTIONS
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import CONTROL_FLOW, walk
from shardc.passes import plan_shardings
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.pin_layouts import PinLayouts
from shardc.passes.split_microbatches import SplitMicrobatches
from tests.py.fuzz.draft import Source
from tests.py.fuzz.non_finite import with_extremes
from tests.py.fuzz.random_solver import random_solver
from tests.py.fuzz.training import Training
from tests.py.passes.on_devices import AS_WRITTEN, run_local, run_whole
from tests.py.passes.one_op import MESH, localized
from tests.py.passes.random_plans import plan_at_random
from tests.py.programs import Program
from tests.py.split_programs import copy_of, normalized, run_module, run_split
from tests.py.table import CLUSTER

# The interpreter aborts on FFTs, knows no libraries, has random bits of its own, and gives a
# collective in a loop what it gave it the first time.
NOT_INTERPRETED = ("stablehlo.fft", "stablehlo.custom_call", "stablehlo.rng_bit_generator")
COLLECTIVES = tuple(
    f"stablehlo.{name}"
    for name in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "collective_permute")
)

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}
NUDGE = {"float64": 1e-12, "float32": 1e-6}

Arrays = list[np.ndarray]


class IllConditioned(Exception):
    """Roundings alone change what the program computes: it says nothing about a plan."""


def check_shardings(source: Source, seed: int, *, extremes: bool = False) -> None:
    """A random strategy for each op on a mesh of 2x2 computes what one device does.

    Args:
        extremes: whether some of the arguments' numbers are zero, infinite, nan or subnormal.
    Raises:
        AssertionError: it does not.
        IllConditioned: one device would not agree with itself.
    """
    with jax.enable_x64(True):
        step, args = source.function(), source.values()
        if extremes:
            args = with_extremes(args, Random(seed))
        module = parse(jax.jit(step, keep_unused=True).lower(*args).as_text(debug_info=True))
        reference = copy_of(module)
        run_passes(reference, [LegalizeChlo(), PinLayouts()])
        compiler.prepare(module)
        plan_at_random(module, MESH, seed)
        xla = not is_interpreted(reference)
        local = localized(module)

        def check(xla: bool, local_xla: bool, options: Mapping[str, Any] = XLA_OPTIONS) -> None:
            got = run_local(local, MESH, args, xla=local_xla, options=options)
            compare(
                lambda values: run_whole(reference, values, xla=xla, options=options), args, got
            )

        # The engines have NaNs in different places, and XLA's simplifications have, too.
        try:
            try:
                check(xla, xla or collectives_repeat(local))
            except AssertionError:
                check(xla=True, local_xla=True)
        except AssertionError:
            if any(op.name == "stablehlo.fft" for op in walk(reference.operation)):
                raise
            check(xla=True, local_xla=True, options=AS_WRITTEN)


def is_interpreted(module: ir.Module) -> bool:
    """Whether the interpreter of StableHLO can run the program."""
    return not any(op.name in NOT_INTERPRETED for op in walk(module.operation))


def collectives_repeat(module: ir.Module) -> bool:
    """Whether a collective stands in control flow."""
    return any(
        inner.name in COLLECTIVES
        for op in walk(module.operation)
        if op.name in CONTROL_FLOW
        for inner in walk(op)
    )


def check_training(training: Training, seed: int, stages: int, microbatches: int) -> None:
    """A step of training through `shardc.jit`, cut as said, with random shardings.

    Raises:
        AssertionError: the results are not those of `jax.jit`.
        IllConditioned: one device would not agree with itself.
        ShardcError: shardc refuses.
    """
    with jax.enable_x64(True), mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
        step, args = training.step(), training.arguments()
        reference = jax.jit(step).lower(*args).compile(XLA_OPTIONS)
        wrapped = shardc.jit(
            step,
            donate_argnums=0,
            cluster=CLUSTER,
            stages=stages,
            microbatches=microbatches,
            mesh=(2, 2),
        )
        got = [np.asarray(x) for x in jax.tree.leaves(wrapped(*args))]

        def run(values: Arrays) -> Arrays:
            state, batch = values[: len(args[0])], values[len(args[0]) :]
            return [np.asarray(x) for x in jax.tree.leaves(reference(state, batch))]

        compare(run, jax.tree.leaves(args), got)


def check_batch_sums(step: Callable[..., Any], args: tuple[Any, ...], count: int) -> None:
    """A step of `batch_sums.random_step` in `count` microbatches, by the definition of the split.

    Raises:
        AssertionError: the results are not those of the whole batch.
        ShardcError: shardc refuses.
    """
    with jax.enable_x64(True):
        module, flat = normalized(Program(step, args, (0,)))
        first = len(jax.tree.leaves(args[0]))
        batch = (first, first + 1), (0, 0)
        cut = copy_of(module)
        run_passes(cut, [FissionLoops(*batch), SplitMicrobatches(count, *batch)])
        for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def compare(run: Callable[[Arrays], Arrays], args: Arrays, got: Arrays) -> None:
    """AssertionError where `got` is not `run(args)`; IllConditioned where that means nothing."""
    expected = run(args)
    differing = differences(expected, got)
    random = np.random.default_rng(1)
    for _ in range(3 if differing else 0):
        again = run([_nudged(a, random) for a in args])
        differing = [i for i in differing if i not in differences(expected, again)]
    if differing:
        raise AssertionError(
            "\n".join(f"result {i}: expected\n{expected[i]}\ngot\n{got[i]}" for i in differing)
        )
    if differences(expected, got):
        raise IllConditioned


def differences(expected: Arrays, got: Arrays) -> list[int]:
    """Positions of the results that differ by more than roundings."""
    narrow = any(a.dtype == np.float32 for a in expected)
    tolerance = TOLERANCE["float32" if narrow else "float64"]
    found = []
    for i, (want, have) in enumerate(zip(expected, got, strict=True)):
        assert want.shape == have.shape
        assert want.dtype == have.dtype
        if want.dtype.kind == "f":
            limit = tolerance * np.abs(want[np.isfinite(want)]).max(initial=1.0)
            if not np.allclose(have, want, rtol=tolerance, atol=limit, equal_nan=True):
                found.append(i)
        elif not np.array_equal(want, have):
            found.append(i)
    return found


def _nudged(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """With other last bits."""
    if array.dtype.kind != "f":
        return array
    size = NUDGE[array.dtype.name]
    return (array * (1 + size * random.normal(size=array.shape))).astype(array.dtype)
