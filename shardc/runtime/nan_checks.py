"""jax_debug_nans and jax_debug_infs for a step of several programs."""

import jax
import numpy as np


def wanted_checks() -> tuple[bool, bool]:
    """Whether (NaNs, infinities) are errors, by the user's JAX configuration."""
    return bool(jax.config.jax_debug_nans), bool(jax.config.jax_debug_infs)


class NotFiniteError(FloatingPointError):
    """A NaN or an infinity that JAX's configuration forbids.

    Attributes:
        program: name of the stage program.
        value: id of its result.
    """

    def __init__(self, word: str, program: str, action: str, value: str) -> None:
        super().__init__(f"{word} in the result '{value}' of {program} (action {action})")
        self.program, self.value = program, value


def check_values(
    program: str, action: str, values: list[tuple[str, jax.Array]], checks: tuple[bool, bool]
) -> None:
    """Waits for `values` and checks every piece of every float among them.

    Raises:
        NotFiniteError: names the program, its action and the value.
    """
    nans, infs = checks
    for name, value in values:
        if not jax.numpy.issubdtype(value.dtype, np.inexact):
            continue
        pieces = [np.asarray(shard.data) for shard in value.addressable_shards]
        for wanted, word, test in ((nans, "NaN", np.isnan), (infs, "infinity", np.isinf)):
            if wanted and any(test(piece).any() for piece in pieces):
                raise NotFiniteError(word, program, action, name)
