"""Train a small GPT over several processes, each with its part of the devices and of the batch.

    shardc launch -n 2 --devices-per-process 2 examples/multiprocess.py     two on this machine
    srun --ntasks 4 python examples/multiprocess.py                         docs/processes.md
    python examples/multiprocess.py                                         one

The script is the same for all: `shardc.initialize()` finds the other processes, if there are any,
and `shardc.batch_sharding()` says which rows of the batch each of them feeds. Every process can
read the loss.
"""

import jax
import numpy as np
import optax
from gpt_model import Sizes, init, make_train_step

import shardc

STEPS = 4
BATCH = 16
SIZES = Sizes(vocabulary=64, length=16, width=32, heads=2, hidden=64, layers=2)


def my_rows(step: int) -> dict[str, jax.Array]:
    """This process's rows of the batch of a step, as its part of one array of the whole job."""
    rank, size = jax.process_index(), jax.process_count()
    rows = range(rank * BATCH // size, (rank + 1) * BATCH // size)
    start = np.array([[7 * step + 5 * row] for row in rows])
    text = ((start + 3 * np.arange(SIZES.length + 1)) % SIZES.vocabulary).astype(np.int32)
    place = shardc.batch_sharding()
    return {
        name: jax.make_array_from_process_local_data(place, part)
        for name, part in (("tokens", text[:, :-1]), ("targets", text[:, 1:]))
    }


def main() -> None:
    shardc.initialize()
    optimizer = optax.adam(1e-2)
    params = init(jax.random.key(0), SIZES)  # every process makes the same numbers
    state = {"params": params, "optimizer": optimizer.init(params)}
    train_step = shardc.jit(
        make_train_step(optimizer),
        donate_argnums=0,
        stages=min(2, jax.device_count()),
        microbatches=4,
        schedule="1f1b",
    )
    for number in range(STEPS):
        state, loss = train_step(state, my_rows(number))
        print(f"rank {jax.process_index()}: step {number}, loss {loss:.4f}", flush=True)
    if jax.process_index() == 0:
        print(train_step.explain(), flush=True)


if __name__ == "__main__":
    main()
