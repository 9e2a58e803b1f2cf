"""The time of the host for the actions of a step, where the prediction leaves it out."""

from collections.abc import Sequence

import jax

from shardc.cluster import Cluster
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.report.summary import seconds
from shardc.runtime.processes.job import is_several

# Of the driving thread, at least, as measured: a pipeline of 2 stages and 4 microbatches on 8
# virtual devices of 2 shared x86 cores (docs/measured.md, "Running").
ACTION_S = 0.4e-3


def host_note(plan: Plan, executable: Executable, devices: Sequence[jax.Device]) -> str:
    """A line about a pipeline for CPU devices of this process whose actions cost the host more than
    is predicted for the whole step; "" elsewhere, and where the cluster says what an action costs.
    """
    machine = plan.cluster
    if machine is None or machine.device.software.action_s > 0.0 or plan.num_stages == 1:
        return ""
    if any(each.platform != "cpu" for each in devices) or is_several():
        return ""
    if machine.device != Cluster.local().device:
        return ""  # it is planned for another machine
    count = sum(map(len, executable.actions))
    if count * ACTION_S <= plan.predicted.step_time_s:
        return ""
    return (
        f"note: not in the prediction: the host's time for {count} actions of a step, about"
        f" {seconds(count * ACTION_S)} at {seconds(ACTION_S)} each on 2 cores. On CPU devices so"
        " small a step is faster with fewer stages and microbatches (stages=1); a cluster file of"
        " `shardc calibrate` has the planner count it\n"
    )
