"""The test programs themselves: stable on one device, and in the dtype that was asked for."""

import jax
import numpy as np
import pytest

from shardc.check.numerics import compare
from tests.py.programs import PROGRAMS, Program, build, leaves

STEPS = 3


def run(program: Program, dtype: str) -> dict[str, np.ndarray]:
    """Leaves of the results after `STEPS` steps by stock `jax.jit`."""
    with jax.enable_x64(dtype == "float64"):
        step = jax.jit(program.step)
        args = program.args
        for _ in range(STEPS):
            results = step(*args)
            args = (results[0], *args[1:])
        return leaves(results)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_device_keeps_the_contract(name: str) -> None:
    program = build(name)
    exact, single = run(build(name, "float64"), "float64"), run(program, "float32")
    report = compare(exact, single, single, program.kinds(list(exact)))
    assert report.passed, str(report)
    assert report.nonfinite_reference_values == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_float64_goes_all_the_way(name: str) -> None:
    with jax.enable_x64(True):
        program = build(name, "float64")
        results = jax.eval_shape(program.step, *program.args)
    floats = {leaf.dtype for leaf in jax.tree.leaves(results) if leaf.dtype.name[:5] == "float"}
    assert floats == {np.dtype("float64")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_state_comes_back_as_it_went_in(name: str) -> None:
    program = build(name)
    state, _ = jax.eval_shape(program.step, *program.args)
    assert jax.tree.structure(state) == jax.tree.structure(program.args[0])
    before, after = jax.tree.leaves(program.args[0]), jax.tree.leaves(state)
    assert [leaf.shape for leaf in before] == [leaf.shape for leaf in after]
    assert [leaf.dtype for leaf in before] == [leaf.dtype for leaf in after]


def test_another_batch_has_as_many_rows_as_asked() -> None:
    for name in PROGRAMS:
        rows = {leaf.shape[0] for leaf in jax.tree.leaves(build(name, batch=12).args[1])}
        assert rows == {12}
