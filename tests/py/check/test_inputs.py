"""Inputs of `shardc run`: seeded values that suit the program, or the arrays of a file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shardc import compiler
from shardc.analysis.program.index_ranges import index_limits, rooted_arguments
from shardc.check.inputs import load_inputs, seeded_inputs
from shardc.errors import InputError
from shardc.importer.from_jax import import_function
from shardc.importer.program import Argument
from shardc.ir.walk import main_function

ARGUMENTS = (
    Argument("w", (64, 8), "float32"),
    Argument("x", (64, 8), "float32"),
    Argument("rate", (), "bfloat16"),
    Argument("tokens", (100,), "int32"),
    Argument("count", (), "int32"),
    Argument("key", (2,), "uint32"),
    Argument("mask", (100,), "bool"),
    Argument("phase", (9,), "complex64"),
)


def test_values_suit_what_they_are_for() -> None:
    values = dict(
        zip(
            "w x rate tokens count key mask phase".split(),
            seeded_inputs(ARGUMENTS, {0, 4}, {3: 5}),
            strict=True,
        )
    )
    for argument in ARGUMENTS:
        value = values[argument.name]
        assert (value.shape, value.dtype.name) == (argument.shape, argument.dtype)
    assert values["w"].min() >= 0 and values["w"].max() <= 0.1
    assert values["x"].min() < 0
    assert 0 <= float(values["rate"]) <= 0.1
    assert set(values["tokens"].tolist()) == set(range(5))
    again = seeded_inputs(ARGUMENTS, {0, 4}, {3: 5})
    assert all(np.array_equal(a, b) for a, b in zip(values.values(), again, strict=True))
    other = seeded_inputs(ARGUMENTS, {0, 4}, {3: 5}, seed=1)
    assert not np.array_equal(values["w"], other[0])


def test_indices_are_found_through_what_is_done_to_them() -> None:
    def program(
        table: jax.Array, rows: jax.Array, classes: jax.Array, start: jax.Array, count: jax.Array
    ) -> jax.Array:
        picked = table[rows.reshape(2, 3)].sum()  # wraps negative ones: compare, add, select
        one_hot = jax.nn.one_hot(classes, 7).sum()
        part = jax.lax.dynamic_slice(table, (start, 0), (4, 2)).sum()

        def body(total: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return total + table[row, 0], None

        looped, _ = jax.lax.scan(body, 0.0, rows)
        return picked + one_hot + part + looped + count

    i32 = jnp.int32
    shapes = (((12, 2), jnp.float32), ((6,), i32), ((5,), i32), ((), i32), ((), i32))
    imported = import_function(program, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    compiler.prepare(imported.module)
    with imported.module.context:
        limits = index_limits(main_function(imported.module.operation))
    assert limits == {1: 12, 2: 7, 3: 9}


def test_variances_are_found() -> None:
    def program(x: jax.Array, mean: jax.Array, variance: jax.Array, scale: jax.Array) -> jax.Array:
        spread = jax.lax.rsqrt(variance.reshape(1, 4, 1) + 1e-5)
        return jnp.sqrt(jnp.sum(((x - mean[:, None]) * spread * scale) ** 2))

    imported = import_function(program, (np.ones((2, 4, 3), np.float32), *([np.ones(4)] * 2), 1.0))
    compiler.prepare(imported.module)
    with imported.module.context:
        assert rooted_arguments(main_function(imported.module.operation)) == {2}


def test_files_by_name_or_in_order(tmp_path: Path) -> None:
    arguments = (Argument("b", (2,), "bfloat16"), Argument("a", (3,), "float32"))
    b, a = np.ones(2, ml_dtypes.bfloat16), np.zeros(3, np.float32)
    np.savez(tmp_path / "named.npz", a=a, b=b)
    np.savez(tmp_path / "ordered.npz", b, a)
    for name in ("named.npz", "ordered.npz"):
        got = load_inputs(tmp_path / name, arguments)
        assert [value.dtype.name for value in got] == ["bfloat16", "float32"]
        assert np.array_equal(got[0], b) and np.array_equal(got[1], a)


@pytest.mark.parametrize("arrays", [[], [np.zeros(3)], [np.zeros(4, np.float32)]])
def test_files_that_do_not_fit_are_refused(tmp_path: Path, arrays: list[np.ndarray]) -> None:
    np.savez(tmp_path / "x.npz", *arrays)
    (tmp_path / "text.npz").write_text("none")
    for name in ("x.npz", "text.npz", "missing.npz"):
        with pytest.raises(InputError) as caught:
            load_inputs(tmp_path / name, (Argument("a", (3,), "float32"),))
        assert caught.value.code == "SHARDC-187"
