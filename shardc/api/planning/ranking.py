"""Plan ranking for the command: progress on a terminal, Ctrl-C, bugs told from refusals."""

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardc.cluster import Cluster
from shardc.ir.bugs import bugs_while
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternatives
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.allowed_request import print_request
from shardc.planner.hand.ranked_plans import ranked_plans
from shardc.progress import say, shown_progress
from shardc.solver.interrupt import stoppable

if TYPE_CHECKING:
    from shardc.ir.context import Module


def rank_plans(
    prepared: "Module",
    cluster: Cluster,
    options: PlanOptions,
    most: int,
    specs: Sequence[StagesSpec],
    signals: Sequence[signal.Signals],
) -> tuple[Plan, Alternatives]:
    """The fastest plan of a prepared module, and the pipelines considered, fastest first.

    Args:
        most: the least number of pipelines that the search prices.
        specs: hand-written plans to rank with them.
        signals: that end the search.
    """
    request = print_request(cluster, options)
    with shown_progress("planning"), stoppable(signals), bugs_while("planning", prepared, request):
        return ranked_plans(prepared, cluster, options, most, specs, say)
