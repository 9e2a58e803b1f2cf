"""What a step takes for granted of its numbers, checked when it has run."""

from collections.abc import Sequence

import jax
import numpy as np

from shardc.errors import CheckError
from shardc.plan.executable import ResultSpec


def check_assumptions(specs: Sequence[ResultSpec], flags: Sequence[jax.Array]) -> None:
    """Waits for the flags of a step, the results that the user does not get.

    Raises:
        CheckError: SHARDC-271, one of them is true.
    """
    found: dict[str, None] = {}  # devices may have copies
    for spec, flag in zip(specs, flags, strict=True):
        for shard in flag.addressable_shards:
            texts = np.array(spec.assumed)[shard.index]
            found.update(dict.fromkeys(texts[np.asarray(shard.data)].tolist()))
    if not found:
        return
    broken = list(found)
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    raise CheckError(
        "token slices leave out what later tokens add to earlier ones, which vanishes if numbers"
        f" are moderate, and in this step they are not: {broken[0]}{more}; the results may differ"
        " from those of one device",
        help='such steps take slices=1, or a schedule without slices such as "1f1b"; what this one'
        " has computed is in the compiled step's unreturned_results",
        code="SHARDC-271",
    )
