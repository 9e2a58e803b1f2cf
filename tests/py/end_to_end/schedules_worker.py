"""Every schedule that runs, its stages on two processes, beside `jax.jit` in each of them.

shardc launch -n 2 tests/py/end_to_end/schedules_worker.py
"""

import sys

import jax
import numpy as np
from process_worker import ROWS, batches, initial, said, step

import shardc
from shardc.schedule.registry import names, schedule_named


def main():
    jax.distributed.initialize()
    whole = jax.jit(step)
    every = [name for name in names() if schedule_named(name).is_executable]
    for schedule in sys.argv[1:] or every:
        trained = shardc.jit(
            step,
            donate_argnums=0,
            batch_argnums=1,
            stages=2,
            microbatches=4,
            mesh=(1,),
            schedule=schedule,
        )
        state, reference, pieces = initial(), initial(), 0
        for batch in batches(2, ROWS):
            state, loss = trained(state, batch)
            reference, wanted = whole(reference, batch)
        for got, value in zip(
            jax.tree.leaves((state, loss)), jax.tree.leaves((reference, wanted)), strict=True
        ):
            for piece in got.addressable_shards:
                want = np.asarray(value)[piece.index]
                np.testing.assert_allclose(piece.data, want, rtol=1e-5, atol=2e-6)
                pieces += 1
        compiled = next(iter(trained._compiled.values()))
        # Some actions are two programs, some none.
        ran = dict.fromkeys(action for action, _ in compiled.interpreter.last_trace)
        own = [lane for lane in compiled.executable.actions if set(ran) & set(lane)]
        for lane in own:
            in_order = [action for action in ran if action in lane]
            assert in_order == [action for action in lane if action in ran], (schedule, lane)
        said(f"{schedule}: {pieces} pieces, {len(ran)} programs on {len(own)} lanes")
    said("OK")


if __name__ == "__main__":
    main()
