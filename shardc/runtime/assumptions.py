"""What a step takes for granted of its numbers, checked when it has run."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from shardc.errors import CheckError
from shardc.plan.executable import ResultSpec


def check_assumptions(specs: Sequence[ResultSpec], flags: Sequence[jax.Array]) -> None:
    """Waits for the flags of a step, the results that the user does not get.

    Raises:
        CheckError: SHARDC-271, one of them is true.
    """
    refuse_broken(
        (np.array(spec.assumed)[shard.index].tolist(), np.asarray(shard.data))
        for spec, flag in zip(specs, flags, strict=True)
        for shard in flag.addressable_shards
    )


def refuse_broken(flags: Iterable[tuple[Sequence[str], Any]]) -> None:
    """Raises if one of the flags, each with what it means, is true; devices may have copies.

    Raises:
        CheckError: SHARDC-271.
    """
    broken = list(
        dict.fromkeys(
            text
            for texts, values in flags
            for text, value in zip(texts, values, strict=True)
            if value
        )
    )
    if not broken:
        return
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    raise CheckError(
        "token slices leave out what later tokens add to earlier ones, which vanishes if numbers"
        f" are moderate, and in this step they are not: {broken[0]}{more}; the results may differ"
        " from those of one device",
        help='such steps take slices=1, or a schedule without slices such as "1f1b"; what this one'
        " has computed is in the compiled step's unreturned_results",
        code="SHARDC-271",
    )
