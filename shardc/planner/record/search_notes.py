"""Notes on a search: whether it was cut short, and what offloading would gain, which is priced and
not run."""

import math
from collections.abc import Sequence

from shardc.plan.alternatives import mesh_words
from shardc.plan.notes import Data, Note, NoteCode
from shardc.planner.pipelines.found_stages import FoundStages
from shardc.planner.pipelines.lines import KnownLines
from shardc.planner.prices.offloaded import OffloadedPrices
from shardc.planner.promising import Promising
from shardc.planner.proposal import Found
from shardc.planner.shapes import ShapeSearch
from shardc.solver.interrupt import poll_between

WORTH = 1.02  # shapes that offload must be estimated faster by this factor


def search_notes(promising: Promising) -> list[Note]:
    """The notes on the search of a plan."""
    search = promising.search
    notes = [Note(NoteCode.NOT_ALL_PRICED)] if search.exhausted else []
    return notes + _offload_notes(search, promising.found)


def _offload_notes(search: ShapeSearch, found: Sequence[Found]) -> list[Note]:
    """The fastest of the priced shapes if stages may offload, if it is clearly faster than the
    best that was found, and than itself without offloading: not all prices are settled."""
    if not found or not search.cluster.device.host_bandwidth_bytes_per_s:
        return []
    prices = OffloadedPrices(search.prices)
    lines, plain = KnownLines(prices, search.cluster), KnownLines(search.prices, search.cluster)
    instead_s = found[0].pipeline.step_time_s
    best, below_s = None, instead_s / WORTH
    for key in search.priced_keys():
        poll_between()
        pipeline = lines.equal(key, below_s=below_s) if search.least_s(key) < below_s else None
        if pipeline is None:
            continue
        if plain.equal(key, below_s=WORTH * pipeline.step_time_s) is None:
            best, below_s = Found(key, pipeline), pipeline.step_time_s
    if best is None:
        return []
    stages = lines.asked(best.key, best.pipeline)
    views = FoundStages(prices, best.key, best.pipeline).views
    data: Data = {
        "step_s": best.pipeline.step_time_s,
        "instead_s": instead_s,
        "shape": mesh_words([view.shape for view in views]),
        "count": best.key.num_microbatches,
        "num_bytes": math.ceil(max(prices.moved_bytes(*stage) for stage in stages)),
        "bytes_per_s": search.cluster.device.host_bandwidth_bytes_per_s,
    }
    return [Note(NoteCode.OFFLOADING, data)]
