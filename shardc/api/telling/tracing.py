"""`shardc.trace`: real steps beside what their plan predicts, for Perfetto."""

import contextlib
import contextvars
from collections.abc import Iterator
from pathlib import Path

from shardc.plan.decisions import Plan
from shardc.report.trace import measured, predicted, save
from shardc.runtime.tape.measured import measuring

_PLANS: contextvars.ContextVar[list[Plan] | None] = contextvars.ContextVar(
    "shardc_traced_plans", default=None
)


@contextlib.contextmanager
def trace(path: str | Path) -> Iterator[None]:
    """Measures the steps of shardc.jit functions of this thread, and writes a trace for Perfetto.

    Every program of a step is waited for before the next begins, so that each has its own time;
    the steps take longer than they would without, as nothing overlaps. Beside them stands what
    their plan predicts. If a call is left by an exception, what was measured until then is written.

    >>> with shardc.trace("step.pftrace"):
    ...     state, loss = step(state, batch)

    Raises:
        InputError: SHARDC-180, the file cannot be written.
    """
    plans: list[Plan] = []
    token = _PLANS.set(plans)
    try:
        with measuring() as steps:
            yield
    finally:
        _PLANS.reset(token)
        processes = [
            predicted(plan)
            for n, plan in enumerate(plans)
            if plan.account and plan not in plans[:n]
        ]
        for number, (plan, step) in enumerate(zip(plans, steps, strict=False)):  # a call may fail
            processes.append(measured(step, plan, number))
        save(path, processes)


def note_step(plan: Plan) -> None:
    """Tells a trace that is open which plan the step that begins now runs by."""
    plans = _PLANS.get()
    if plans is not None:
        plans.append(plan)
