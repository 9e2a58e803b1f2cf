"""Train a small GPT that goes on where it was saved, on whatever devices there are now.

    python examples/checkpoints.py /tmp/run                                   one process
    shardc launch -n 2 --devices-per-process 2 examples/checkpoints.py /tmp/run

Every start plans for the devices of this job and restores into that plan what another plan saved:
kill it, start it again on fewer or more. The batch of a step depends on the step's number alone, so
all runs see the same data in the same order. orbax saves while the steps go on, and renames what is
complete: a run that is killed while it saves goes on from the save before.
"""

import argparse
import os
import signal
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from gpt_model import Sizes, init, make_train_step

import shardc

BATCH = 16
SIZES = Sizes(vocabulary=64, length=16, width=32, heads=2, hidden=64, layers=2)


def my_rows(step: int) -> dict[str, Any]:
    """This process's rows of the batch of a step; all rows where the devices do not divide them."""
    rank, size = jax.process_index(), jax.process_count()
    is_split = BATCH % jax.device_count() == 0
    rows = range(rank * BATCH // size, (rank + 1) * BATCH // size) if is_split else range(BATCH)
    start = np.array([[7 * step + 5 * row] for row in rows])
    text = ((start + 3 * np.arange(SIZES.length + 1)) % SIZES.vocabulary).astype(np.int32)
    batch = {"tokens": text[:, :-1], "targets": text[:, 1:]}
    if not is_split:
        return batch  # NumPy arrays, the same on every process
    place = shardc.batch_sharding()
    return {
        name: jax.make_array_from_process_local_data(place, part) for name, part in batch.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--kill-at", type=int, help="the last process kills itself at this step")
    options = parser.parse_args()
    shardc.initialize()
    shardc.use_orbax()

    optimizer = optax.adam(1e-2)

    def first_state() -> dict[str, object]:
        params = init(jax.random.key(0), SIZES)  # every process makes the same numbers
        return {"params": params, "optimizer": optimizer.init(params)}

    shape = jax.ShapeDtypeStruct((BATCH, SIZES.length), np.int32)
    batch = {"tokens": shape, "targets": shape}
    train_step = shardc.jit(
        make_train_step(optimizer),
        donate_argnums=0,
        stages=min(2, jax.device_count()),
        microbatches=4,
        schedule="1f1b",
    )
    planned = train_step.lower(jax.eval_shape(first_state), batch).plan()
    compiled = planned.compile()

    rank, size = jax.process_index(), jax.process_count()
    with ocp.CheckpointManager(options.folder) as manager:
        found = manager.latest_step()
        if found is None:
            state = first_state()
        else:
            into = ocp.args.StandardRestore(planned.abstract_state())
            state = manager.restore(found, args=into)
        print(f"rank {rank} of {size}: goes on behind step {found or 0}", flush=True)
        for number in range(found or 0, options.steps):
            if number == options.kill_at and rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            state, loss = compiled(state, my_rows(number))
            print(f"rank {rank}: step {number + 1}, loss {loss:.6f}", flush=True)
            if (number + 1) % options.save_every == 0:
                manager.save(number + 1, args=ocp.args.StandardSave(state))


if __name__ == "__main__":
    main()
