"""The JAX releases that shardc was tested with, and the lowering for newer ones."""

import warnings
from typing import Literal

import jax

NEWEST_TESTED: tuple[int, ...] = (0, 12, 0)

Lowering = Literal["local", "xla"]


def usable_lowering(asked: Lowering) -> Lowering:
    """`asked`, or "xla" under a JAX newer than any tested one.

    shardc's own per-device programs depend on details of StableHLO and XLA that a new release may
    change; annotated programs that XLA partitions depend only on JAX's public behaviour.
    """
    if asked == "xla" or tuple(jax.__version_info__[:3]) <= NEWEST_TESTED:
        return asked
    newest = ".".join(map(str, NEWEST_TESTED))
    warnings.warn(
        f"jax {jax.__version__} is newer than {newest}, the newest that shardc was tested with:"
        ' using lowering="xla"',
        stacklevel=3,
    )
    return "xla"
