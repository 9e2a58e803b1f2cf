"""Several plans in one job; each goes on with the state that the one before it has saved.

    shardc launch -n 2 --devices-per-process 2 \\
        tests/py/end_to_end/plans_worker.py FOLDER gpipe:2:1 1f1b:4:2:fed

A plan is SCHEDULE:STAGES:DEVICES, with DEVICES of each process (1/2: of the first two processes
only), and `fed` if each passes its rows of the batch; with `host` the momenta are kept in the
memory of the host, and rank 1 alone passes weights and rows from there; with `moved` it goes on
with the live state of the plan before it, reallocated, instead of the saved one. Losses, state and
order of actions are checked in each process, the first step of gpipe by shardc as well. With
`--differ` rank 1 then asks for something else than rank 0, in four ways, of which the last ends the
job.
"""

import sys
from pathlib import Path

import jax
import numpy as np
from process_worker import (
    ROWS,
    batches,
    check_lanes,
    check_pieces,
    fed,
    initial,
    restored,
    said,
    saved,
    step,
)

import shardc
from shardc.errors import PlanError

STEPS = 2
HOST = "pinned_host"


def step_from_host(state, x):
    """`step` with momenta that lie in the memory of the host; the rest may."""
    state, x = jax.device_put((state, x), jax.memory.Space.Device)
    state, loss = step(state, x)
    return {**state, "m": jax.device_put(state["m"], jax.memory.Space.Host)}, loss


def in_host_memory(tree):
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(HOST)), tree)


def trained_with(devices, schedule, stages, microbatches=4, check="never", fun=step):
    return shardc.jit(
        fun,
        donate_argnums=0,
        batch_argnums=1,
        stages=stages,
        microbatches=microbatches,
        mesh=(len(devices) // stages,),
        schedule=schedule,
        devices=devices,
        check=check,
    )


def run(folder, plan, whole, reference, before):
    """Two more steps under a plan, from what is saved; what `jax.jit` has behind them, and ours.

    Args:
        before: state and function of the plan before it in this job.
    """
    schedule, stages, devices, *rest = plan.split(":")
    is_fed, is_host = "fed" in rest, "host" in rest
    count, _, processes = devices.partition("/")
    ranks = range(int(processes or jax.process_count()))
    every = [d for p in ranks for d in jax.local_devices(p)[: int(count)]]
    check = "first" if schedule == "gpipe" else "never"
    fun = step_from_host if is_host else step
    trained = trained_with(every, schedule, int(stages), check=check, fun=fun)
    manager, begin, state = restored(folder, trained, initial(), ROWS)
    if "moved" in rest:
        planned = trained.lower(initial(), batches(1, ROWS)[0]).plan()
        state = shardc.reallocate(*before, planned)
    for batch in batches(begin + STEPS, ROWS)[begin:]:
        rows = fed(batch, every) if is_fed else batch
        if is_host and jax.process_index() == 1:
            rows, state["w"] = in_host_memory((rows, state["w"]))
        state, loss = trained(state, rows)
        reference, wanted = whole(reference, batch)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)  # every process can read it
    kinds = {value.sharding.memory_kind for value in state["m"]}
    assert kinds == {HOST if is_host else "device"}, kinds
    pieces = check_pieces(state, reference)
    saved(manager, begin + STEPS, state)
    manager.close()
    said(f"{plan}: OK behind step {begin}: {pieces} pieces, {check_lanes(trained)} actions")
    return reference, (state, trained)


def differ():
    """Asks for a plan of what rank 0 does not have, and for a step of other numbers."""
    is_other, version = jax.process_index() == 1, jax.__version__
    for how in ("versions", "arguments", "options"):
        if how == "versions" and is_other:
            jax.__version__ = "0.0.1"
        microbatches = 2 if how == "options" and is_other else 4
        rows = 2 * ROWS if how == "arguments" and is_other else ROWS
        trained = trained_with(jax.devices(), "1f1b", 2, microbatches)
        try:
            trained.lower(initial(), batches(1, rows)[0]).plan()
        except PlanError as error:
            said(f"refused for its {how}: {error}")
        jax.__version__ = version
    trained = trained_with(jax.devices(), "1f1b", 2)
    trained({**initial(), "n": 7 if is_other else 0}, batches(1, ROWS)[0])


def main():
    jax.distributed.initialize()
    folder, *plans = [each for each in sys.argv[1:] if each != "--differ"]
    whole, reference = jax.jit(step), initial()
    numbers = [int(each.name) for each in Path(folder).iterdir() if each.name.isdigit()]
    for batch in batches(max(numbers, default=0), ROWS):
        reference, _ = whole(reference, batch)
    before = None
    for plan in plans:
        reference, before = run(folder, plan, whole, reference, before)
    if "--differ" in sys.argv:
        differ()


if __name__ == "__main__":
    main()
