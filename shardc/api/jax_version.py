"""Which JAX releases shardc has been tested with, and what happens with a newer one."""

import warnings
from typing import Literal

import jax

NEWEST_TESTED: tuple[int, ...] = (0, 12, 0)

Lowering = Literal["local", "xla"]


def usable_lowering(asked: Lowering) -> Lowering:
    """`asked`, or "xla" under a JAX that is newer than any that was tested.

    shardc's own per-device programs rest on details of StableHLO and XLA that a new release may
    change; annotated programs that XLA partitions itself rest on JAX's public behaviour alone.
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
