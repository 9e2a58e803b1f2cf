"""Whether a plan computes what its program computes on one device, by `shardc.check.numerics`.

Everything runs twice: in the program's own precision, which shows the order of additions, and
widened to float64, where a wrong program cannot hide behind rounding.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt

from shardc.backend.programs import compile_programs
from shardc.backend.single_device import SingleDeviceStep, single_device_step
from shardc.check.numerics import Report, compare
from shardc.importer.program import Imported
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.strip_shardings import StripShardings
from shardc.passes.widen_floats import WidenFloats
from shardc.plan.executable import Executable
from shardc.runtime.interpreter import Interpreter

if TYPE_CHECKING:
    from shardc.ir.context import Module

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Outputs:
    """Results of the last step by name, and the time of a step.

    Attributes:
        step_time_s: median over all steps but the first, which still allocates.
    """

    values: dict[str, Array]
    step_time_s: float


@dataclass(frozen=True)
class Verdict:
    """The comparison of the plan's outputs in the program's own precision and in float64."""

    own: Report
    wide: Report

    @property
    def passed(self) -> bool:
        return self.own.passed and self.wide.passed

    def to_dict(self) -> dict[str, Any]:
        """In the format of `shardc run --check --format json`; errors are in the own precision."""
        failures = [(leaf, "own precision") for leaf in self.own.failures]
        failures += [(leaf, "float64") for leaf in self.wide.failures]
        return {
            **self.own.to_dict(),
            "float64_max_relative_error": self.wide.max_relative_error,
            "passed": self.passed,
            "failures": [f"{leaf.name} ({where}): {leaf.problem}" for leaf, where in failures],
        }

    def __str__(self) -> str:
        return f"own precision: {self.own}\nfloat64: {self.wide}"


def widened(module: "Module") -> "Module":
    """A copy of a module, in any form, that computes in float64."""
    copy = copy_module(module)
    run_passes(copy, [WidenFloats()])
    return copy


def result_names(imported: Imported) -> list[str]:
    """Distinct names of the results."""
    return [f"{i} {result.name}".rstrip() for i, result in enumerate(imported.results)]


def references(
    imported: Imported,
    inputs: Sequence[Array],
    state: Mapping[int, int],
    steps: int,
    device: jax.Device,
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Results of the last step on one device: in the program's own precision, in float64, and in
    float64 from inputs with different last bits. Needs JAX's x64 mode.
    """
    names = result_names(imported)
    own, wide = reference_steps(imported, device)
    wide_inputs = [widen_array(value) for value in inputs]
    runs = [(own, list(inputs)), (wide, wide_inputs), (wide, moved(wide_inputs))]
    found = [_repeat(step, values, state, steps) for step, values in runs]
    exact, exact64, nearby64 = (dict(zip(names, each, strict=True)) for each in found)
    return exact, exact64, nearby64


def reference_steps(
    imported: Imported, device: jax.Device
) -> tuple[SingleDeviceStep, SingleDeviceStep]:
    """The program on one device, in its own precision and in float64.

    The program is the imported one, untouched by shardc's passes except for annotations that name
    at most one device. In float64 its CHLO ops are expanded first, as in the plan: float32
    expansions are approximations, and differ from those for float64. Needs JAX's x64
    mode.
    """
    module = copy_module(imported.module)
    run_passes(module, [StripShardings()])
    expanded = copy_module(module)
    run_passes(expanded, [LegalizeChlo()])
    return single_device_step(module, device), single_device_step(widened(expanded), device)


def moved(values: Sequence[Array], seed: int = 0) -> list[Array]:
    """The values, with the last bit changed in about half of the nonzero float32 and float64."""
    random = np.random.default_rng(seed)

    def move(value: Array) -> Array:
        if value.dtype not in (np.float32, np.float64):
            return value
        side = random.choice(np.array([-np.inf, np.inf], value.dtype), value.shape)
        kept = (value == 0) | (random.random(value.shape) < 0.5)
        return np.where(kept, value, np.nextafter(value, side))

    return [move(np.asarray(value)) for value in values]


def widen_array(value: Array) -> Array:
    """The same numbers in float64 or complex128; integers and floats of up to 8 bits stay."""
    if value.dtype.kind == "c":
        return value.astype(np.complex128)
    narrow = value.dtype.name in ("float16", "bfloat16", "float32")  # as in shardc-widen-floats
    return value.astype(np.float64) if narrow else value


def _repeat(
    step: SingleDeviceStep, inputs: Sequence[Array], state: Mapping[int, int], steps: int
) -> list[Array]:
    values = list(inputs)
    results: list[Array] = []
    for _ in range(steps):
        results = step(values)
        for argument, result in state.items():
            values[argument] = results[result]
    return results


def state_of(executable: Executable) -> dict[int, int]:
    """Argument -> the result that replaces it in the next step."""
    return {
        i: argument.aliased_result
        for i, argument in enumerate(executable.arguments)
        if argument.aliased_result is not None and argument.piece is None
    }


def outputs(
    executable: Executable,
    inputs: Sequence[Array],
    names: Sequence[str],
    steps: int,
    devices: Sequence[jax.Device],
) -> Outputs:
    """Runs `steps` steps, each on the state returned by the previous one."""
    step = Interpreter(executable, compile_programs(executable, devices))
    state = state_of(executable)
    values: list[Any] = list(inputs)
    results: list[jax.Array] = []
    times_s = []
    for _ in range(steps):
        start_s = time.perf_counter()
        results = jax.block_until_ready(step(values))
        times_s.append(time.perf_counter() - start_s)
        for argument, result in state.items():
            values[argument] = results[result]
    host = [np.asarray(result) for result in results]
    return Outputs(dict(zip(names, host, strict=True)), float(np.median(times_s[1:] or times_s)))


def judge(
    reference32: dict[str, Array],
    reference64: dict[str, Array],
    nearby64: dict[str, Array],
    own: dict[str, Array],
    wide: dict[str, Array],
    nearby32: Sequence[Mapping[str, Array]] = (),
) -> Verdict:
    """Compares the results of `outputs` with those of `references`."""
    return Verdict(
        compare(reference64, reference32, own, nearby32=nearby32, nearby64=nearby64),
        compare(reference64, None, wide, nearby64=nearby64),
    )
