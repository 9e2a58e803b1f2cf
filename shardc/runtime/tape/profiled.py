"""Measures steps as they run, without waiting: JAX's profiler notes when each program ran.

On CPUs a profile has every op of every program, with the module, the program and the run that it
belongs to. The runs of a program are numbered in the order of their dispatch.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from shardc.errors import InputError
from shardc.runtime.tape.measured import Call, MeasuredStep, alone, measuring


class Dispatch(NamedTuple):
    """A call of a program.

    Attributes:
        program: its name.
        call: tells programs of one name apart.
    """

    action: str
    program: str
    call: Call


class Run(NamedTuple):
    """When a program ran, in ns: from the first op on any of its devices to the last."""

    start: float
    end: float


@dataclass
class ProfiledStep(MeasuredStep):
    """A step as it ran: programs of different devices overlap."""

    dispatched: list[Dispatch] = field(default_factory=list)

    def run(self, action: str, program: str, call: Call, read: Sequence[Any]) -> Sequence[Any]:
        """Dispatches a program, and notes that."""
        self.dispatched.append(Dispatch(action, program, call))
        return call(*read)

    def sent(self, start_ns: int) -> None:
        """Nothing: a profile has no transfers."""

    def received(self, start_ns: int, values: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def as_they_run() -> Iterator[Sequence[MeasuredStep]]:
    """Measures the steps of this thread: as they run on CPUs, whose profiles have been looked at;
    program by program on other devices.

    Raises:
        InputError: SHARDC-180, another profile is being written.
    """
    with profiled() if jax.default_backend() == "cpu" else alone() as steps:
        yield steps


@contextlib.contextmanager
def profiled() -> Iterator[list[ProfiledStep]]:
    """Measures the steps of this thread while it is open; their `runs` are known at the end.

    The profile begins with the first step, so it has no planning and compiling before it.

    Raises:
        InputError: SHARDC-180, another profile is being written.
    """
    steps: list[ProfiledStep] = []
    with tempfile.TemporaryDirectory() as folder:

        def begin() -> ProfiledStep:
            if not steps:
                _start(folder)
            steps.append(ProfiledStep())
            return steps[-1]

        try:
            with measuring(begin):
                yield steps
        finally:
            if steps:
                jax.block_until_ready(jax.live_arrays())
                jax.profiler.stop_trace()
                (path,) = Path(folder).rglob("*.xplane.pb")
                with warnings.catch_warnings():
                    # A type that JAX makes here has no module; as an error that would be fatal.
                    warnings.filterwarnings("ignore", "builtin type event_stats")
                    fill_in(steps, jax.profiler.ProfileData.from_file(str(path)))


def _start(folder: str) -> None:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    try:
        jax.profiler.start_trace(folder, profiler_options=options)
    except RuntimeError as error:  # JAX has no name for it
        raise InputError(
            f"steps cannot be measured: {error}", help="end the other profile of JAX first"
        ) from error


def fill_in(steps: Sequence[ProfiledStep], profile: Any) -> None:
    """Finds the runs of steps in a profile; what it does not have is left out.

    Of programs with one name, the one that was dispatched first ran first.
    """
    found: list[list[tuple[str, Run]]] = [[] for _ in steps]
    calls: dict[str, dict[Call, list[tuple[int, str]]]] = {}
    for number, step in enumerate(steps):
        for each in step.dispatched:
            own = calls.setdefault(each.program, {}).setdefault(each.call, [])
            own.append((number, each.action))
    ran = runs_of(profile)
    for program, by_call in calls.items():
        for own, runs in zip(by_call.values(), ran.get(f"jit_{program}", ()), strict=False):
            if len(own) == len(runs):
                for (number, action), run in zip(own, runs, strict=True):
                    found[number].append((action, run))
    for step, known in zip(steps, found, strict=True):
        begin = min((run.start for _, run in known), default=0.0)
        times = [(name, round(run.start - begin), round(run.end - begin)) for name, run in known]
        step.runs = sorted(times, key=lambda each: each[1:])


def runs_of(profile: Any) -> dict[str, list[list[Run]]]:
    """By name of a module, for each program in the order of their first ops, its runs."""
    ran: dict[tuple[str, int, int], Run] = {}
    for line in (line for plane in profile.planes for line in plane.lines):
        for event in line.events:
            stats = dict(event.stats)
            if "run_id" not in stats or "hlo_module" not in stats:
                continue
            key = stats["hlo_module"], int(stats["program_id"]), int(stats["run_id"])
            start, end = event.start_ns, event.start_ns + event.duration_ns
            known = ran.get(key, Run(start, end))
            ran[key] = Run(min(known.start, start), max(known.end, end))
    programs: dict[tuple[str, int], list[Run]] = {}
    for (module, program, _), run in sorted(ran.items()):
        programs.setdefault((module, program), []).append(run)
    found: dict[str, list[list[Run]]] = {}
    for (module, _), runs in sorted(programs.items(), key=lambda each: min(each[1])):
        found.setdefault(module, []).append(runs)
    return found
