"""Programs that the random search has found something with, each as small as it got."""

from tests.py.fuzz.draft import Source
from tests.py.fuzz.training import Training

# Name: what went wrong -> the program. Any plan of it must hold.
SHARDINGS = {
    "an all-reduce of bits, which XLA does not have": """def step(a0):
    v0 = jnp.bitwise_or.reduce(a0, axis=0)
    return v0,
    # ((8, 1, 1, 8), 'int32')""",
    "zeros that a loop starts from as partial sums, and a scatter too": """def step(a0, a1, a2):
    v0 = lax.scan(lambda c, x: (jnp.tanh(c + x), c * x), jnp.zeros((4, 4)), a0)[0]
    v1 = jax.grad(lambda t: jnp.sum(jnp.sin(jnp.take(t, a2, 0, mode='clip'))))(a1)
    return v0, v1,
    # ((4, 4, 4), 'float64'), ((4, 4), 'float64'), ((8,), 'int32')""",
}

# The same for steps of training: the function of one row, and which arguments are parameters.
TRAINING = {
    "both operands of a convolution have a batch": (
        """def step(a0, a1, a2, a3, a4):
    v0 = jnp.tanh(a0 @ a1)
    v1 = lax.conv_general_dilated(a2, a3, (1, 1), [(0, 2), (0, 2)], (2, 2), (2, 1), ('HWCN', 'OIHW', 'NHWC'), feature_group_count=2)
    v2 = jnp.tanh(v0 @ a4)
    return v1, v2,
    # ((2, 4), 'float64'), ((4, 4), 'float64'), ((4, 4, 4, 2), 'float64'), ((8, 2, 1, 3), 'float64'), ((4, 8), 'float64')""",  # noqa: E501 - the program as it was found
        (False, True, False, False, True),
    ),
    "approximate top-k has a comparator of its own": (
        """def step(a0, a1, a2):
    v0 = jnp.tanh(a0 @ a1)
    v1 = jnp.tanh(lax.approx_max_k(v0, 4)[0] @ a2)
    return v1,
    # ((2, 4), 'float64'), ((4, 8), 'float64'), ((4, 8), 'float64')""",
        (False, True, True),
    ),
    "the comparator of a sort uses constants from outside": (
        """def step(a0, a1, a2, a3):
    v0 = jnp.tanh(a0 @ a1)
    v1 = jnp.tanh(lax.sort([jnp.round(v0), a2], dimension=1, num_keys=2)[1] @ a3)
    return v1,
    # ((2, 4), 'float64'), ((4, 8), 'float64'), ((2, 8), 'float64'), ((8, 4), 'float64')""",
        (False, True, True, True),
    ),
}


def source(name: str) -> Source:
    return Source.parse(SHARDINGS[name])


def training(name: str) -> Training:
    text, shared = TRAINING[name]
    return Training(Source.parse(text), shared)
