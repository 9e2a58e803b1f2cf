"""Whatever is called, with whatever, gives what `jax.jit` gives: values, types and pytrees."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import shardc
from shardc.api.call_types import key_of_call
from shardc.api.stages import Lowered
from shardc.errors import InputError

DEVICES = jax.devices()[:2]
sharded = functools.partial(shardc.jit, devices=DEVICES, stages=1, microbatches=1)
X = np.arange(8, dtype=np.float32)
W = np.random.default_rng(0).standard_normal((8, 8), np.float32)
DEVICE_W = jnp.asarray(W)


def assert_as_jax(f: Callable[..., Any], *args: Any, options: Any = None, **kwargs: Any) -> None:
    got = sharded(f, **(options or {}))(*args, **kwargs)
    want = jax.jit(f, **(options or {}))(*args, **kwargs)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert isinstance(g, jax.Array)
        assert (g.shape, g.dtype, g.aval.weak_type) == (w.shape, w.dtype, w.aval.weak_type)
        if jnp.issubdtype(g.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        g, w = (np.asarray(leaf).astype(np.complex128) for leaf in (g, w))
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Record:
    """A pytree with a part that is no leaf."""

    array: Any
    table: dict[str, Any]
    kind: str = dataclasses.field(metadata={"static": True}, default="plain")


Pair = collections.namedtuple("Pair", "first second")


class Scale:
    """Called like a function."""

    factor = 3

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.factor * x


def keyword(a: Any, n: int = 1, *, m: int = 2) -> Any:
    return a * n * m


CALLS: dict[str, Callable[[], None]] = {
    "static by number and name": lambda: assert_as_jax(
        keyword, X, 3, m=4, options={"static_argnums": 1, "static_argnames": "m"}
    ),
    "static by name, passed by keyword": lambda: assert_as_jax(
        keyword, X, n=3, options={"static_argnames": ("n", "m")}
    ),
    "static numpy scalar": lambda: assert_as_jax(
        keyword, X, np.int32(3), options={"static_argnums": 1}
    ),
    "static with a default": lambda: assert_as_jax(keyword, X, options={"static_argnums": 1}),
    "keywords in any order": lambda: assert_as_jax(lambda a, b: a - b, b=X, a=2 * X),
    "any number of arguments": lambda: assert_as_jax(lambda *a, **k: sum(a) + k["z"], X, X, X, z=X),
    "unused arguments": lambda: assert_as_jax(lambda a, b, c: b, X, 2 * X, X),
    "no arguments": lambda: assert_as_jax(lambda: (jnp.ones(3), 2.0, True)),
    "a partial": lambda: assert_as_jax(functools.partial(keyword, n=5), X),
    "an object": lambda: assert_as_jax(Scale(), X),
    "a function of jax.jit": lambda: assert_as_jax(jax.jit(lambda a: a + 1), X),
    "closures": lambda: assert_as_jax(lambda a: a @ W + a @ DEVICE_W, X),
    "any pytree": lambda: assert_as_jax(
        lambda t: jax.tree.map(lambda leaf: leaf + 1, t),
        {
            "pair": Pair(X, [X, None, (X,)]),
            "record": Record(X, {"k": X}),
            "ordered": collections.OrderedDict(z=X, a=X),
        },
    ),
    "empty arrays": lambda: assert_as_jax(
        lambda a, w: (a @ w, a.sum(), jnp.concatenate([a, w]), w[:0]), np.ones((0, 8)), W
    ),
    "scalars of Python": lambda: assert_as_jax(
        lambda a, b, c, d: (a + 1, b * 2, ~c, d + 1j), 1, 2.0, True, 1j
    ),
    "integers and booleans out": lambda: assert_as_jax(
        lambda a: (a > 3, a.astype(np.int8), jnp.argmax(a), jnp.any(a > 2)), X
    ),
    "keys": lambda: assert_as_jax(
        lambda key: (jax.random.split(key), jax.random.bits(key, (4,))), jax.random.key(0)
    ),
    "many keys": lambda: assert_as_jax(
        lambda keys: jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys),
        jax.random.split(jax.random.key(1), 4),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_jax_gives(call: str) -> None:
    CALLS[call]()


NARROW = (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.float16, np.bool_)


def test_every_dtype_goes_through() -> None:
    arrays = [jnp.asarray(np.arange(8) % 2, d) for d in (*NARROW, np.uint8, np.complex64)]
    assert_as_jax(lambda *a: [(x, x[::-1], jnp.stack([x, x])) for x in a], *arrays)


def test_64_bit_values_where_jax_has_them() -> None:
    with jax.enable_x64(True):
        wide = X.astype(np.float64), np.arange(8)
        assert_as_jax(lambda a, b, c: (a * c, a.sum(), b + 1), *wide, 3.5)
    assert_as_jax(lambda a, b: (a * 2, b + 1), *wide)


def test_meshes_of_one_device_and_axes_of_size_one() -> None:
    for devices, mesh in ((DEVICES[:1], "auto"), (DEVICES[:1], (1,)), (DEVICES, (1, 2, 1))):
        f = shardc.jit(lambda a, w: (a @ w).sum(), devices=devices, mesh=mesh, stages=1)
        np.testing.assert_allclose(f(W, W), (W @ W).sum(), rtol=1e-5)


def test_arrays_may_lie_anywhere() -> None:
    f = sharded(lambda a, b: a @ b)
    far = jax.make_mesh((4,), ("x",), devices=jax.devices()[4:])
    places = [
        lambda a: a,
        np.asfortranarray,
        jnp.asarray,
        lambda a: jax.device_put(a, jax.devices()[3]),
        lambda a: jax.device_put(a, NamedSharding(far, PartitionSpec())),
    ]
    for one in places:
        np.testing.assert_allclose(f(one(W), places[-2](W)), W @ W, rtol=1e-4, atol=1e-5)
    assert len(f._compiled) == 1


def test_new_types_are_traced_and_known_ones_are_not() -> None:
    traced = []
    f = sharded(lambda a: (traced.append(1), a * 2)[1])
    for value in (X, X[:4], jnp.asarray(X), X.astype(np.int32), X[:4], 2.0, 3.0, 2, True):
        f(value)
    assert len(traced) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_default_matmul_precision", "highest"),
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 1),
        ("jax_high_dynamic_range_gumbel", True),
    ],
)
def test_calls_under_settings_that_change_numbers_are_traced_apart(name: str, value: Any) -> None:
    def key() -> Any:
        return key_of_call(jax.tree.structure(0), [1.0], ())

    known, before = key(), getattr(jax.config, name)
    try:
        jax.config.update(name, value)
        assert key() != known
    finally:
        jax.config.update(name, before)
    assert key() == known


def test_donation_by_name() -> None:
    a, b = jnp.ones(8), jnp.ones(8)
    sharded(lambda a, *, b: a + b, donate_argnames="b")(a, b=b)
    assert b.is_deleted() and not a.is_deleted()


@pytest.mark.parametrize(
    "options", [{"static_argnums": 5}, {"static_argnames": "z"}, {"donate_argnums": 7}]
)
def test_what_jax_refuses_is_refused_with_its_words(options: Any) -> None:
    with pytest.raises(ValueError, match="arg") as words:
        jax.jit(lambda a: a, **options)
    with pytest.raises(InputError) as caught:
        sharded(lambda a: a, **options)
    (name,) = options
    assert caught.value.code == "SHARDC-180"
    assert caught.value.message.startswith(f"jax.jit does not take {name}={options[name]!r}: ")
    assert str(words.value).partition("<lambda>")[0] in caught.value.message


def test_what_no_step_takes_is_refused_before_it_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lowered, "compile", lambda self: pytest.fail("planned"))
    step = shardc.jit(lambda state, x: (state["w"] + x, state["ema"]), donate_argnums=0)
    w = jnp.ones((4, 4))
    with pytest.raises(shardc.ShardcError, match=r"SHARDC-264.*'state\['ema'\]'"):
        step({"w": w, "ema": w}, jnp.ones((4, 4)))
    gone = jnp.ones((4, 4))
    gone.delete()
    with pytest.raises(shardc.ShardcError, match=r"SHARDC-262.*'state\['w'\]'"):
        step({"w": gone, "ema": w}, jnp.ones((4, 4)))
    assert step.cache_info().programs == 0
