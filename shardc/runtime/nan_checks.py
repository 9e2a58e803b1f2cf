"""What jax_debug_nans and jax_debug_infs mean for a step of several programs."""

import jax
import numpy as np


def wanted_checks() -> tuple[bool, bool]:
    """(NaNs, infinities) are errors, as the user configured JAX."""
    return bool(jax.config.jax_debug_nans), bool(jax.config.jax_debug_infs)


def check_values(
    program: str, action: str, values: list[tuple[str, jax.Array]], checks: tuple[bool, bool]
) -> None:
    """Waits for `values` and looks at every piece of every float among them.

    Raises:
        FloatingPointError: names the program, its action and the value.
    """
    nans, infs = checks
    for name, value in values:
        if not jax.numpy.issubdtype(value.dtype, np.inexact):
            continue
        pieces = [np.asarray(shard.data) for shard in value.addressable_shards]
        for wanted, word, test in ((nans, "NaN", np.isnan), (infs, "infinity", np.isinf)):
            if wanted and any(test(piece).any() for piece in pieces):
                raise FloatingPointError(
                    f"{word} in the result '{name}' of {program} (action {action})"
                )
