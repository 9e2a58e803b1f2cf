"""`shardc.trace` and `shardc.rank_times`: real steps next to the plan's prediction."""

import contextlib
import contextvars
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import msgspec

from shardc.api.telling.probe import Probe
from shardc.errors import writing
from shardc.files import as_path
from shardc.plan.decisions import Plan
from shardc.report.stragglers import times_of
from shardc.report.trace import measured, predicted, save
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.tape.measured import MeasuredStep, alone
from shardc.runtime.tape.profiled import as_they_run

PROBES = 20  # before the steps, and after them

# The steps that are measured, and the plan of each.
_STEPS: contextvars.ContextVar[tuple[list[Plan], Sequence[MeasuredStep]] | None] = (
    contextvars.ContextVar("shardc_steps", default=None)
)


@contextlib.contextmanager
def trace(path: str | Path) -> Iterator[None]:
    """Measures the steps of shardc.jit functions of this thread, and writes a trace for Perfetto.

    On CPUs the steps run as usual, and JAX's profiler notes when each program ran; it takes memory
    and time of its own, so trace a few steps. On other devices each program runs alone, because no
    profile of theirs has been tried: those steps take longer, and nothing overlaps. The trace also
    shows the plan's prediction. If an exception ends a call, the measurements so far are written.

    >>> with shardc.trace("step.pftrace"):
    ...     state, loss = step(state, batch)

    Raises:
        InputError: SHARDC-180, the file cannot be written, or JAX is writing another profile.
    """
    with writing("the trace", path):  # before the steps, not after them
        as_path(path).parent.resolve(strict=True)
    plans: list[Plan] = []
    steps: Sequence[MeasuredStep] = ()
    try:
        with as_they_run() as steps, _noting(plans, steps):
            yield
    finally:
        _write_trace(path, plans, steps)


@contextlib.contextmanager
def rank_times(folder: str | Path) -> Iterator[None]:
    """Measures the programs of this process, for `shardc doctor --straggler FOLDER`.

    Every process of a job opens it around the same steps, two or more, and writes `rank-N.json` at
    the end; the first step is not counted. The steps take longer than usual, because
    nothing overlaps. Before and after them, each process times a small computation of its own: a
    program whose mesh spans several processes takes as long as the slowest of them.

    >>> with shardc.rank_times("times"):
    ...     for number in range(5):
    ...         state, loss = step(state, batch)

    Raises:
        InputError: SHARDC-180, a file cannot be written, or no step was run twice.
    """
    with writing("the times of a rank", folder):  # before the steps, not after them
        as_path(folder).mkdir(parents=True, exist_ok=True)
    plans: list[Plan] = []
    with no_context_mesh():
        probe = Probe()
        probe.run(PROBES)
    with alone() as steps, _noting(plans, steps):
        yield
    with no_context_mesh():
        probe.run(PROBES)
    times = times_of(jax.process_index(), platform.node(), steps, plans)
    msgspec.structs.replace(times, probe_s=probe.median_s()).save(folder)


@contextlib.contextmanager
def _noting(plans: list[Plan], steps: Sequence[MeasuredStep]) -> Iterator[None]:
    """Notes the plan of each step that begins while it is open."""
    token = _STEPS.set((plans, steps))
    try:
        yield
    finally:
        _STEPS.reset(token)


def _write_trace(path: str | Path, plans: Sequence[Plan], steps: Sequence[MeasuredStep]) -> None:
    processes = [
        predicted(plan) for n, plan in enumerate(plans) if plan.account and plan not in plans[:n]
    ]
    for number, (plan, step) in enumerate(zip(plans, steps, strict=False)):
        processes.append(measured(step, plan, number))
    save(path, processes)


def note_step(plan: Plan) -> None:
    """Records the plan of the next step in an open trace. A later call overrides it, because a
    call may fail before its step begins."""
    if (known := _STEPS.get()) is not None:
        plans, steps = known
        plans[len(steps) :] = [plan]
