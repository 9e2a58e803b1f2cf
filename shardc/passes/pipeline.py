"""The order of the passes, each with its reason, and every pass by its name."""

from shardc.ir.pass_manager import Pass
from shardc.passes.canonicalize import Canonicalize
from shardc.passes.cse import Cse
from shardc.passes.inline_calls import InlineCalls
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.strip_shardings import StripShardings

NORMALIZE: tuple[Pass, ...] = (
    # First, because every later pass reads one flat function and nothing else.
    InlineCalls(),
    # Because a constraint on one device would stand between an op and its user as a barrier.
    StripShardings(),
    # Because CHLO ops have no sharding rules; their StableHLO expansions have.
    LegalizeChlo(),
    # Because the expansions and JAX leave identities and dead ops that would each cost a decision.
    Canonicalize(),
    # Last, because inlining has put equal ops side by side: constants, casts, broadcasts.
    Cse(),
)

PASSES: dict[str, type[Pass]] = {
    each.name: each
    for each in (
        InlineCalls,
        StripShardings,
        LegalizeChlo,
        Canonicalize,
        Cse,
    )
}
