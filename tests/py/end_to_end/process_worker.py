"""A training script of several processes: what tests and the table of faults run.

    shardc launch -n 2 tests/py/end_to_end/process_worker.py --stages 2 --schedule 1f1b

Compares every loss and its part of the state with `jax.jit`, in this process, and prints `OK`. With
`--checkpoints` it goes on behind the last step that any plan saved there, and saves its own state.
It says what it comes to ("rank 0: at compile"), so that a fault can be timed.
"""

import argparse
import os
import resource
import signal
import sys
import time

import jax
import numpy as np

import shardc

ROWS, WIDTH, LAYERS = 16, 32, 4


def step(state, x):
    """A tanh network with momentum, a step count and a loss over the whole batch."""

    def loss(w):
        h = x
        for layer in w:
            h = jax.numpy.tanh(h @ layer)
        return jax.numpy.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(state["w"])
    moved = [0.9 * m + g for m, g in zip(state["m"], gradients, strict=True)]
    new = [w - 0.1 * m for w, m in zip(state["w"], moved, strict=True)]
    return {"w": new, "m": moved, "n": state["n"] + 1}, value


def initial():
    random = np.random.default_rng(0)
    shape = (WIDTH, WIDTH)
    weights = [random.normal(0, 0.2, shape).astype(np.float32) for _ in range(LAYERS)]
    return {"w": weights, "m": [np.zeros(shape, np.float32)] * LAYERS, "n": 0}


def batches(count, rows):
    random = np.random.default_rng(1)
    return [random.normal(size=(rows, WIDTH)).astype(np.float32) for _ in range(count)]


def fed(batch, devices=None):
    """The batch as one array of the job, of which this process has its rows."""
    rank, size = jax.process_index(), jax.process_count()
    rows = batch[rank * len(batch) // size : (rank + 1) * len(batch) // size]
    return jax.make_array_from_process_local_data(shardc.batch_sharding(devices), rows)


def orbax():
    """Loaded where it is needed: it takes a second."""
    import orbax.checkpoint

    return orbax.checkpoint


def restored(folder, trained, state, rows):
    """The manager of the checkpoints, the last step there, and its state under this plan."""
    shardc.use_orbax()
    manager = orbax().CheckpointManager(folder)
    found = manager.latest_step()
    if found is None:
        return manager, 0, state
    abstract = trained.lower(state, batches(1, rows)[0]).plan().abstract_state()
    return manager, found, manager.restore(found, args=orbax().args.StandardRestore(abstract))


def check_pieces(tree, reference):
    """How many pieces of `tree` this process has, all equal to those of `reference`."""
    pieces = 0
    for got, value in zip(jax.tree.leaves(tree), jax.tree.leaves(reference), strict=True):
        for piece in got.addressable_shards:
            want = np.asarray(value)[piece.index]
            np.testing.assert_allclose(piece.data, want, rtol=1e-5, atol=2e-6)
            pieces += 1
    return pieces


def check_lanes(trained):
    """How many actions ran here in the last step, in the order of the schedule."""
    compiled = next(iter(trained._compiled.values()))
    # Some actions are two programs, some none.
    ran = dict.fromkeys(action for action, _ in compiled.interpreter.last_trace)
    for lane in compiled.executable.actions:
        own = [action for action in ran if action in lane]
        assert own == [action for action in lane if action in ran], (own, lane)
    return len(ran)


def said(text):
    """In one write, so that lines of several processes do not mix."""
    os.write(1, f"rank {os.environ.get('SLURM_PROCID', 0)}: {text}\n".encode())


def hurt(how, when, at):
    """Does what `--fault` says to this process, when it comes to `when`."""
    if how is None or at != when:
        return
    said("at fault")
    if how == "full":  # a disk on which files cannot grow; Python ignores the signal that comes too
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    if how == "raise":
        raise RuntimeError("as asked")
    if how == "exit":
        sys.exit(0)
    if how == "sleep":
        time.sleep(1000)


def unlike(how, state, batch):
    """A batch of other shapes, which asks for another plan; a part of the state gone, or other."""
    if how == "gone":
        state["w"][1].delete()
    if how == "caught":
        state["n"] = 7
    return np.concatenate([batch, batch]) if how == "rows" else batch


def hurt_in_a_transfer(how, number):
    """Does it to this process behind its `number`-th send or receive, before it ends elsewhere."""
    from shardc.runtime.messages.between import _JointRoute
    from shardc.runtime.messages.direct import DirectRoute

    count = [0]

    def wrapped(original):
        def transfer(*args):
            found = original(*args)
            count[0] += 1
            hurt(how, number, count[0])
            return found

        return transfer

    for kind in (DirectRoute, _JointRoute):
        kind.send, kind.receive = wrapped(kind.send), wrapped(kind.receive)


def without_its_first_receive():
    """Forces a broken tape through: this process takes no part in the first message it should get.

    Both checks of the tape are passed by.
    """
    from shardc.runtime import interpreter
    from shardc.runtime.processes.arrays import is_here
    from shardc.runtime.tape.instructions import Receive
    from shardc.runtime.tape.places import slot_places

    build_tape = interpreter.build_tape

    def broken(executable, programs):
        tape = build_tape(executable, programs)
        places = zip(tape.slots, slot_places(tape, programs), strict=True)
        own = {slot.group for slot, place in places if is_here(place)}
        first = next(
            position
            for position, each in enumerate(tape.instructions)
            if isinstance(each, Receive) and tape.messages[each.message].target in own
        )
        del tape.instructions[first]
        tape.first_update -= first < tape.first_update
        return tape

    interpreter.build_tape = broken
    interpreter.check_meetings = lambda *_: None


def saved(manager, number, state):
    said(f"at save {number}")
    manager.save(number, args=orbax().args.StandardSave(state))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--feed", action="store_true")
    parser.add_argument("--plan")
    parser.add_argument("--checkpoints", help="a folder")
    parser.add_argument("--save-every", type=int, default=10**9, help="steps; and at the end")
    parser.add_argument(
        "--fault",
        help="HOW:RANK:WHEN, WHEN of launch, connected, start, compile, or a step's number;"
        " rows, gone and caught at a step",
    )
    parser.add_argument("--at-transfer", type=int, help="WHEN, as the number of a send or receive")
    options = parser.parse_args()
    how, rank, when = (options.fault or "none:-1:").split(":")
    how = how if os.environ.get("SLURM_PROCID") == rank else None
    said("at launch")
    hurt(how, when, "launch")
    jax.distributed.initialize()
    said("at connected")
    hurt(how, when, "connected")
    jax.devices()
    said("at start")
    hurt(how, when, "start")
    rows = 2 * ROWS if how == "shapes" else ROWS
    state, reference = initial(), initial()
    if how == "scalar":
        state["n"] = 7
    if how == "version":
        jax.__version__ = "0.0.1"
    if how == "unreceived":
        without_its_first_receive()
    if options.at_transfer is not None:
        hurt_in_a_transfer(how, options.at_transfer)
    trained = shardc.jit(
        step,
        donate_argnums=0,
        batch_argnums=1,
        stages=options.stages if options.plan is None else "auto",
        microbatches=4
        if options.plan is None and how != "plan"
        else 2
        if how == "plan"
        else "auto",
        schedule=options.schedule if options.plan is None else "auto",
        plan=options.plan,
    )
    whole = jax.jit(step)
    if options.checkpoints is None or when == "compile":
        said("at plan")
        lowered = trained.lower(state, batches(1, rows)[0])
        lowered.plan()
        said("at compile")
        hurt(how, when, "compile")
    manager, begin = None, 0
    if options.checkpoints is not None:
        manager, begin, state = restored(options.checkpoints, trained, state, rows)
        said(f"went on behind step {begin}")
    every = batches(begin + options.steps, rows)
    for batch in every[:begin]:
        reference, _ = whole(reference, batch)
    for number, batch in enumerate(every[begin:]):
        hurt(how, when, str(number))
        given = unlike(how, state, batch) if when == str(number) else batch
        try:
            state, loss = trained(state, fed(given) if options.feed else given)
        except shardc.errors.InputError:
            if how == "caught":
                time.sleep(1000)
            raise
        reference, wanted = whole(reference, batch)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)  # every process can read it
        if number == 0:
            said("at steps")
        if manager is not None and (number + 1) % options.save_every == 0:
            saved(manager, begin + number + 1, state)
    pieces = check_pieces(state, reference)
    if manager is not None:
        if options.steps % options.save_every != 0:
            saved(manager, begin + options.steps, state)
        manager.close()
    said(f"OK: {pieces} pieces, {check_lanes(trained)} actions")


if __name__ == "__main__":
    main()
