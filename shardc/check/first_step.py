"""The last safety net: compares the first step of a plan with the same step on one device."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from shardc.backend.single_device import SingleDeviceStep
from shardc.check.numerics import LeafReport, compare
from shardc.check.verify import moved, reference_steps, result_names, widen_array
from shardc.errors import CheckError, RequestWarning
from shardc.importer.program import Imported
from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges
from shardc.progress import say
from shardc.runtime.messages.array_moves import in_each_process

Array = npt.NDArray[Any]

NEARBY_RUNS = 8
_ROOM = str(Path(__file__).parents[1])


def check_first_step(
    imported: Imported,
    plan: Plan,
    step: Callable[[], list[Any]],
    arguments: Sequence[Any],
    device: jax.Device,
    memory_bytes: int,
) -> list[Any]:
    """Runs `step` and compares its results with those of one device, by `shardc.check.numerics`.

    The arguments are copied to the host first, so `step` may donate them. One device runs the
    program in its own precision, in float64, and in float64 from inputs with different last bits.
    If a leaf differs, it runs `NEARBY_RUNS` more times from such inputs, so that differences that
    rounding alone explains do not count. A step that does not fit on one device, or that calls the
    host, is not compared: a RequestWarning says so. In a job, every process compares.

    Args:
        step: runs one step of the plan on `arguments`; returns its flat results.
        arguments: flat, random keys as their numbers.
        device: the single device, one of this process.
        memory_bytes: of that device.
    Returns:
        The results of `step`.
    Raises:
        CheckError: SHARDC-270, a leaf differs.
    """
    dtypes = [np.dtype(argument.dtype) for argument in imported.arguments]
    inputs: list[Array] = []
    reason = (
        "the program calls the host, which would be called twice" if imported.host_calls else ""
    )
    if not reason:
        least = sum(2 * np.size(a) * d.itemsize for a, d in zip(arguments, dtypes, strict=True))
        reason = _too_large(least, memory_bytes)
    if not reason:
        whole = in_each_process(arguments)
        inputs = [np.array(a, d, copy=True) for a, d in zip(whole, dtypes, strict=True)]
    results = step()
    if not reason:
        with jax.enable_x64(True):
            say("compiling the step for one device, to compare the first step with it")
            steps = reference_steps(imported, device)
            reason = _too_large(max(each.num_bytes for each in steps), memory_bytes)
            if not reason:
                names = result_names(imported)
                whole = in_each_process(results)
                got = dict(zip(names, map(np.asarray, whole), strict=False))
                say("comparing the first step with one device")
                _refuse(_failures(steps, names, inputs, got), plan)
    if reason:
        warnings.warn(
            f"the first step is not compared with one device: {reason}",
            RequestWarning,
            skip_file_prefixes=(_ROOM,),
        )
    return results


def _too_large(num_bytes: int, memory_bytes: int) -> str:
    if num_bytes <= memory_bytes:
        return ""
    return f"it would hold {num_bytes} bytes in float64, and the device has {memory_bytes}"


def _failures(
    steps: tuple[SingleDeviceStep, SingleDeviceStep],
    names: Sequence[str],
    inputs: Sequence[Array],
    got: dict[str, Array],
) -> list[LeafReport]:
    """The leaves that differ by more than rounding of the inputs explains."""
    own_step, wide_step = steps

    def run(step: SingleDeviceStep, values: Sequence[Array]) -> dict[str, Array]:
        return dict(zip(names, step(values), strict=True))

    wide = [widen_array(value) for value in inputs]
    own, exact, nearby64 = run(own_step, inputs), run(wide_step, wide), run(wide_step, moved(wide))
    report = compare(exact, own, got, nearby64=nearby64)
    if report.passed:
        return []
    nearby = [run(own_step, moved(inputs, seed)) for seed in range(NEARBY_RUNS)]
    report = compare(exact, own, got, nearby32=nearby, nearby64=nearby64)
    return [leaf for leaf in report.failures if not _is_unsettled(leaf, own, got, nearby)]


def _is_unsettled(
    leaf: LeafReport,
    own: dict[str, Array],
    got: dict[str, Array],
    nearby: Sequence[dict[str, Array]],
) -> bool:
    """Whether a leaf of integers also changes on one device under rounding: an argmax among
    equal values."""
    expected = own.get(leaf.name)
    if leaf.rule != "d" or expected is None or got[leaf.name].shape != expected.shape:
        return False
    if got[leaf.name].dtype != expected.dtype:
        return False
    return any(not np.array_equal(run[leaf.name], expected) for run in nearby)


def _refuse(failures: Sequence[LeafReport], plan: Plan) -> None:
    if not failures:
        return
    leaf, more = failures[0], len(failures) - 1
    others = f" (and {more} more)" if more else ""
    meshes = ", ".join(
        f"{'x'.join(map(str, stage.mesh.shape)) or '1'} on {ranges(stage.mesh.device_ids)}"
        for stage in plan.stages
    )
    raise CheckError(
        f"the first step differs from a single-device run in result {leaf.name}{others}:"
        f" {leaf.problem}",
        where=f"the plan: {plan.num_stages} stages, {plan.num_microbatches} microbatches,"
        f" schedule {plan.schedule}, meshes {meshes}",
        help="this is a bug in shardc: please report it with the program and the plan"
        " (`f.lower(...).plan().plan.save(path)`); until then stages=1, microbatches=1 or"
        ' lowering="xla" may avoid it',
    )
