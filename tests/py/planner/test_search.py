"""What the planner makes of requests that leave something to it."""

import shardc
from tests.py.programs import build
from tests.py.table import CLUSTER


def test_stages_that_are_asked_for_share_the_work_of_one_microbatch() -> None:
    """Statistics over the batch in every layer: it cannot be cut."""
    step, args, donated, *_ = build("mlp_batch_norm")
    plan = (
        shardc.jit(step, donate_argnums=donated, stages=2, cluster=CLUSTER).lower(*args).plan().plan
    )
    assert (plan.num_stages, plan.num_microbatches) == (2, 1)
    flops = [stage.num_flops for stage in plan.stages]
    assert min(flops) >= 0.25 * sum(flops)
