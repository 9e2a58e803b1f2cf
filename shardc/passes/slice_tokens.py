"""Cut the sequences of each stage into token slices that run one after the other."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import free_number
from shardc.analysis.slices.lengths import slice_edges
from shardc.analysis.slices.needed_rows import hindrance, token_slices
from shardc.analysis.slices.op_rows import LooksAhead
from shardc.analysis.slices.recipes import TokenSlices
from shardc.analysis.slices.stage_values import StageValues
from shardc.errors import StageError
from shardc.ir.attributes import NUM_SLICES, get_int, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, where
from shardc.rewrite.slices.checks import return_checks
from shardc.rewrite.slices.rows import spans
from shardc.rewrite.slices.write import PartIds, SliceWriter

HELP = (
    'take a schedule that leaves sequences whole, such as "1f1b"; docs/schedules.md says which'
    " masks are known to be causal"
)


@dataclass(frozen=True)
class SliceTokens(Pass):
    """Makes of each function of a microbatch one for each token slice, for terapipe and seq1f1b.

    Reads the stage functions that shardc-outline-stages{accumulate=true} wrote. Slice number n is
    the `shardc.round` of its functions, and each runs on the rows of its own tokens. Attention has
    the keys and values of the slices so far: functions of earlier slices give theirs to those of
    later ones. What a slice's backward adds to the gradients of keys and values of earlier slices
    goes on to the slice before, which adds its own; backwards run from the last slice to the first.
    Sums over tokens go into the accumulators slice by slice. Only programs are cut in which no
    token needs a later one, as `shardc.analysis.slices` proves. What it takes for granted of
    numbers that only a run knows, such as how large scores are, each slice checks: the last results
    of the step say whether it holds, and `shardc.assumed` what it is. A second run changes nothing.

    Options:
        slices: how many. Later ones get fewer tokens, as their queries meet more keys.
    """

    name = "shardc-slice-tokens"

    slices: int = 2

    def apply(self, module: ir.Operation) -> None:
        if get_int(module, NUM_SLICES) is not None:
            return
        found = token_slices(module)
        why = hindrance(found, self.slices)
        if why or not isinstance(found, TokenSlices):
            raise _refusal(found, why)
        ids = PartIds(free_number(functions(module)), StageValues(module).sources)
        parts = spans(slice_edges(found, self.slices))
        for function, how in found.functions.items():
            for number in range(self.slices):
                with ir.InsertionPoint(function):
                    SliceWriter(function, how, parts, number, ids).write()
            if how.checked:
                premises = list(how.checked)
                return_checks(module, function, premises, ids.counts(function), ids.fresh())
        for function in found.functions:  # not before: the ids know values by where they are
            function.erase()
        module.attributes[NUM_SLICES] = int_attr(self.slices)


def _refusal(found: TokenSlices | LooksAhead | None, why: str) -> StageError:
    if isinstance(found, TokenSlices):
        ways_out = f"ask for at most {found.length} slices"
        return StageError(why, help=ways_out, code="SHARDC-165")
    place = None if found is None else where(found.op)
    return StageError(why, where=place, help=HELP, code="SHARDC-165")
