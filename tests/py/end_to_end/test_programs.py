"""The test programs themselves: in the dtype that was asked for, and they hand on their state."""

import jax
import numpy as np
import pytest

from tests.py.programs import PROGRAMS, build


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
