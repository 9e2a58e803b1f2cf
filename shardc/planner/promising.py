"""Finds the shapes of a program that are worth planning exactly, by the prices of its layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.analysis.batch.batch_state import divisors
from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal
from shardc.analysis.program.arguments import cut_dims
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Cluster
from shardc.ir.attributes import SWEEPS, function_kind
from shardc.ir.context import Module
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, functions, main_function
from shardc.options import PlanOptions
from shardc.plan.function_kind import FunctionKind
from shardc.plan.shape import PipelineShape
from shardc.planner.budget import BUDGET
from shardc.planner.island_search import IslandSearch
from shardc.planner.layer_samples import find_layers, layer_loops
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.prices.views import stage_views
from shardc.planner.proposal import Found, Key, Proposal, by_use
from shardc.planner.shapes import ShapeSearch
from shardc.planner.split_cache import Splits
from shardc.solver.solve import LimitError

LEAST_SHARE = 1 / 16  # of the FLOPs: loops over layers with less are not cut for stages
PRIMES = (2, 3, 5, 7, 11, 13)  # microbatches tried to find out whether the batch can be split


@dataclass(frozen=True)
class Promising:
    """The result of the search.

    Attributes:
        found: fastest first.
        search: the search that found them.
        across: pipelines over islands of unlike devices, fastest first.
    """

    found: list[Found]
    search: ShapeSearch
    across: Sequence[Proposal] = ()

    def with_smaller(self, waiting: Sequence[Found], full: Found, error: LimitError) -> list[Found]:
        """`waiting`, with a replacement for `full`, which turned out not to fit: stages chosen
        again for less memory, or a single stage in the next number of microbatches that may fit.
        The search skips these numbers once a single stage seems to fit."""
        needed = self.search.prices.limit + error.missing_bytes
        if full.key.num_stages == 1:
            first = self._finer(full, needed / self.search.prices.limit)
        else:
            first = self.search.tighter(full, error.stage or 0, needed)
        if first is None:
            return list(waiting)
        seconds = [each.pipeline.step_time_s for each in waiting]
        at = sum(1 for each_s in seconds if each_s <= first.pipeline.step_time_s)
        return [*waiting[:at], first, *waiting[at:]]

    def _finer(self, full: Found, over: float) -> Found | None:
        """A single stage like `full`, which needs `over` times the memory of a device."""
        least = over * full.key.num_microbatches  # at best, all that is held shrinks with them

        def is_finer(key: Key) -> bool:
            return key.num_microbatches >= least and (key.num_stages, key.size) == (
                1,
                full.key.size,
            )

        finer = self.search.estimated(is_finer)
        return min(finer, key=lambda each: each.key.num_microbatches, default=None)

    def stretch(self, shape: PipelineShape, parts: int) -> float:
        """The factor by which cutting a microbatch into equal parts slows it down, by the prices of
        layers in that many more microbatches; 1.0 if none are known."""
        prices, size = self.search.prices, len(shape.meshes[0].device_ids)
        if size not in prices.open_sizes():
            return 1.0
        whole_s = prices.least_s(size, shape.num_microbatches)
        return parts * prices.least_s(size, parts * shape.num_microbatches) / whole_s


def microbatch_counts(
    module: Module, splits: Splits, loop_cuts: tuple[int, ...], cluster: Cluster
) -> list[int] | MicrobatchRefusal:
    """All possible numbers of microbatches within the budget, ascending; the refusal if neither a
    usual number nor any of `PRIMES` can split it."""
    counts = [n for n in divisors(splits.batch_parts) if n <= BUDGET.most_microbatches]
    usual = by_use(counts[1:], cluster, splits.rows)[:1]
    if usual and isinstance(splits.try_at(usual[0], loop_cuts), Module):
        return counts
    refusal = None
    for prime in PRIMES:
        split_module = splits.try_at(prime, loop_cuts)
        if isinstance(split_module, MicrobatchRefusal):
            refusal = refusal or split_module
            continue
        with split_module.context:
            dims = cut_dims(split_module.operation)
        with module.context:
            arguments = body(main_function(module.operation)).arguments
            rows = math.gcd(*(shape_of(arguments[a])[dim] for a, dim in dims.items()))
            found = [n for n in divisors(rows) if n <= BUDGET.most_microbatches]
            return found or [1]  # a batch without rows
    assert refusal is not None
    return refusal


def promising_shapes(
    module: Module,
    splits: Splits,
    cluster: Cluster,
    options: PlanOptions,
    schedules: Sequence[str],
    spent: Callable[[], float],
    note: Callable[[MicrobatchRefusal], None],
    wanted: int = BUDGET.wanted,
) -> Promising | StageRefusal | None:
    """Searches all open choices of stages, submeshes, views, microbatches and schedules.

    None if several stages are requested but the batch cannot be split, or needs several sweeps:
    stages then save no time, and the cheapest ones would leave most devices idle. A StageRefusal
    if the program cannot be cut into that many stages.

    Args:
        spent: the spent share of the search's time.
        wanted: as in `ShapeSearch`.
        note: receives the refusal if the batch cannot be split.
    """
    loops = layer_loops(splits.module, LEAST_SHARE)
    loop_cuts = tuple(cut for first, _ in loops for cut in (first + 1, first + 2))
    counts = [1]
    if options.microbatches != "auto":
        counts = [options.microbatches]
    else:
        possible = microbatch_counts(module, splits, loop_cuts, cluster)
        if isinstance(possible, MicrobatchRefusal) and loops:
            possible = microbatch_counts(module, splits, (), cluster)
            if not isinstance(possible, MicrobatchRefusal):
                loops, loop_cuts = [], ()
        if isinstance(possible, MicrobatchRefusal):
            note(possible)
        else:
            counts = possible
    if counts == [1] != [options.microbatches] and options.stages not in (1, "auto"):
        return None
    reference = _reference(splits, counts, loop_cuts, cluster)
    split_module = splits.cut_at(reference, loop_cuts)
    asked = options.stages if isinstance(options.stages, int) else 1
    found_layers = find_layers(split_module, loops, at_least=asked)
    if isinstance(found_layers, StageRefusal):
        return found_layers
    layers, outlined = found_layers
    several_sweeps = SWEEPS in split_module.operation.attributes
    if several_sweeps and options.microbatches == "auto" and options.stages not in (1, "auto"):
        return None
    kinds = {function_kind(f) for f in functions(outlined.operation)}

    def prices_on(equal: Cluster) -> StagePrices:
        costs = LayerCosts(splits, loop_cuts, layers, (reference, outlined), equal, options.seed)
        views = stage_views(equal, options)
        limit = options.memory_limit_bytes or equal.device.memory_bytes
        return StagePrices(costs, views, equal, limit, FunctionKind.BACKWARD in kinds)

    # With several sweeps, the first stage of a pipeline would run all but the last of them alone
    # before the others begin. Without a backward pass, one microbatch keeps one stage busy at once.
    least = 1 if FunctionKind.BACKWARD in kinds else 2
    piped = counts
    if options.stages == "auto":
        piped = [count for count in counts if count >= least and not several_sweeps]

    def search_on(equal: Cluster) -> ShapeSearch:
        prices = prices_on(equal)
        return ShapeSearch(prices, splits, equal, options, piped, counts, schedules, spent, wanted)

    search = search_on(cluster.least)
    found = search.run()
    if not cluster.islands:
        return Promising(found, search)
    alone = [search_on(part) for part, _ in cluster.parts]
    across = IslandSearch(cluster, alone, splits, options, piped, schedules, spent)
    return Promising(found, search, across.run())


def _reference(
    splits: Splits, counts: list[int], loop_cuts: tuple[int, ...], cluster: Cluster
) -> int:
    """The number of microbatches in which layers are found, and priced first."""
    for count in by_use([n for n in counts if n > 1], cluster, splits.rows):
        if isinstance(splits.try_at(count, loop_cuts), Module):
            return count
    return counts[0]
