"""The work that planning may do: the limits of the search over shapes, in one record.

What decides between plans ("near the best", "worth another plan") stands beside its rule. The
solver's own limits are in `shardc.solver.solve`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Effort(NamedTuple):
    """Limits of solving a stage: see `shardc.solver.solve.solve`.

    Attributes:
        gap: relative distance to the lower bound at which the solver stops.
        effort_s: counted work, in seconds of a typical core.
    """

    gap: float
    effort_s: float


@dataclass(frozen=True)
class Budget:
    """Work is counted, so that a busy machine finds the same plan; the clock only stops.

    Attributes:
        most_microbatches: considered; the host launches each of their programs.
        pricing_work: pairs of strategies in all problems of a search that price layers.
        pricing_work_of_islands: the same of a search over unlike islands.
        opening, doubtful, until_one_fits: what may be spent of it, as a share: on views not yet
            explored, the rest settles the best shapes; on views in doubt of sizes that lead; on
            points that hold less, while no shape was found that fits.
        priced_twice: how much more a program may cost that may keep what it computes again.
        per_problem, per_count: approximate work of building a problem, and of splitting a step into
            another number of microbatches, in pairs of strategies.
        layer, layer_s: effort of pricing one layer, and seconds by the clock.
        most_entries: of the tables for unequal stages, in all searches together.
        least_searches: for unequal stages, whatever they cost; the second for the other schedule.
        wanted_of_islands, counts_of_islands, most_ordered: pipelines to find over unlike islands,
            numbers of microbatches to try, and the most islands that are tried in every order; more
            only in two orders.
        most_staged: modules with stages that are cached.
        most_finer: doublings of the parts of loops, to find as many layers as there are stages.
        wanted, least: shapes whose prices are settled: at most; and at least, unless far behind.
        most_planned, most_tried: shapes planned exactly, if they fit and if they do not.
        ranked_ops, unranked_ops: total ops of the shapes planned exactly, with and without
            estimates that rank them.
        keep_prices: of values kept between sweeps over the microbatches, tried in this order until
            one makes the plan faster: the lower, the more is kept.
        competing, final, by_hand: efforts of solving a stage while shapes compete; of the winning
            shape, and to compare it with and without a requested sharding; of a plan by hand, whose
            shardings leave less to solve.
        ops_for_effort: a stage with more ops gets proportionally more: a scan of all takes longer.
        first_share, share: of the time limit, of the rest: for planning one shape.
        searching_share: of the time limit, after which no more layers are priced.
        most_schedules, most_near: schedules to plan exactly, of those estimated to be faster; and
            for `optimal`, of those near the best.
        most_pipelines: planned because other schedules may make them the best.
        most_chunks: of a schedule that supports any number.
        rounds, rounds_of_searched: microbatches per device group that are simulated of a longer
            pipeline, which repeats itself; and where the order is searched for.
        many_rounds: microbatches per device group from which on not all are simulated.
        glance: microbatches per device group that are simulated first, of at least twice as many.
        order_effort_s: counted work, to search for an order of tasks.
    """

    most_microbatches: int = 4096

    pricing_work: int = 20_000_000
    pricing_work_of_islands: int = 40_000_000
    opening: float = 0.7
    doubtful: float = 1.3
    until_one_fits: float = 3.0
    priced_twice: int = 2
    per_problem: int = 50_000
    per_count: int = 1_500_000
    layer: Effort = field(default=Effort(0.04, 0.5))
    layer_s: float = 60.0

    most_entries: int = 60_000_000
    least_searches: int = 2
    wanted_of_islands: int = 2
    counts_of_islands: int = 8
    most_ordered: int = 3

    most_staged: int = 3
    most_finer: int = 6
    wanted: int = 4
    least: int = 2
    most_planned: int = 3
    most_tried: int = 9
    ranked_ops: int = 16_000
    unranked_ops: int = 40_000
    keep_prices: tuple[float, ...] = (1.0, 10.0, 100.0)
    competing: Effort = field(default=Effort(0.05, 5.0))
    final: Effort = field(default=Effort(0.01, 20.0))
    by_hand: Effort = field(default=Effort(0.01, 5.0))
    ops_for_effort: int = 8_000
    first_share: float = 0.25
    share: float = 0.85
    searching_share: float = 0.7

    most_schedules: int = 4
    most_near: int = 12
    most_pipelines: int = 3
    most_chunks: int = 8
    rounds: tuple[int, int] = (4, 6)
    rounds_of_searched: tuple[int, int] = (2, 4)
    many_rounds: int = 12
    glance: int = 2
    order_effort_s: float = 10.0


BUDGET = Budget()
