"""Values of several meshes, brought to one place."""

import jax
import numpy as np

from shardc.runtime.gather import gather
from tests.py.runtime.toy_step import toy_inputs


def test_a_state_of_two_stages_can_be_mixed_once_gathered(interpreter):
    w0, w1, *_ = interpreter()(toy_inputs())
    tree = gather({"w": [w0, w1], "name": "toy", "step": 3})
    assert {leaf.devices() == {jax.devices()[0]} for leaf in tree["w"]} == {True}
    np.testing.assert_allclose(
        tree["w"][0] @ tree["w"][1], np.asarray(w0) @ np.asarray(w1), atol=1e-6
    )
    assert (tree["name"], tree["step"]) == ("toy", 3)


def test_what_is_gathered_outlives_the_original():
    original = jax.device_put(jax.numpy.arange(3.0), jax.devices()[2])
    for device in (None, jax.devices()[2]):
        copy = gather(original, device)
        assert copy.devices() == {device or jax.devices()[0]}
        np.testing.assert_array_equal(copy, original)
    original.delete()
    np.testing.assert_array_equal(copy, [0, 1, 2])


def test_random_keys_are_gathered_too():
    key = jax.device_put(jax.random.key(0), jax.devices()[3])
    assert jax.random.bits(gather(key)) == jax.random.bits(jax.random.key(0))
