"""Dims of parameters that no axis of a mesh divides, but would if they were padded."""

import itertools
import math
from collections.abc import Sequence

from shardc.plan.account import Account, ArgumentKind, PlacedArgument
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.plan.notes import size
from shardc.report.model import Finding
from shardc.report.summary import seconds

MULTIPLES = (8, 16, 64, 128)  # an awkward dim may be rounded up to a multiple of one of these
LEAST = 128  # shorter dims are not worth padding
MOST_PADDING = 0.05  # share by which padding may lengthen a dim
WORTH = 0.001  # share of the peak, or of the step, that it must gain


def of_uneven_dims(plan: Plan, account: Account) -> dict[str, Finding]:
    """For each argument with such a dim, the padding with the best price; equal shapes count once.

    The price assumes that the axes that divide the longer dim then split it: less work of its
    products on each device, after the padding, and less memory.
    """
    found: dict[str, Finding] = {}
    seen: set[tuple[int, tuple[int, ...], int]] = set()
    for each in account.arguments:
        mesh = plan.stages[each.stage].mesh
        if each.kind is not ArgumentKind.PARAMETERS or len(mesh.device_ids) == 1:
            continue
        for dim, length in enumerate(each.shape):
            key = each.stage, each.shape, dim
            odd = all(length % n for _, n in mesh.axes if n > 1)
            if not odd or length < LEAST or key in seen:
                continue
            seen.add(key)
            best = _best_padding(plan, account, each, length, mesh)
            if best is not None:
                found.setdefault(each.name, _finding(each, dim, length, mesh, *best))
    return found


def _best_padding(
    plan: Plan, account: Account, each: PlacedArgument, length: int, mesh: Mesh
) -> tuple[int, float, int] | None:
    """The longer dim, seconds per step and bytes on a device that it gains; None: not worth it."""
    product_s = _seconds_of(account, each.name)
    options = []
    for longer in sorted({-(-length // multiple) * multiple for multiple in MULTIPLES}):
        if longer > length * (1 + MOST_PADDING):
            continue
        share = longer / length / _most_shards(longer, [n for _, n in mesh.axes])
        options.append((longer, product_s * (1 - share), int(each.num_bytes * (1 - share))))
    if not options:
        return None
    best = max(options, key=lambda option: (*option[1:], -option[0]))
    worth = best[1] >= WORTH * plan.predicted.step_time_s or best[2] >= WORTH * plan.fullest()[1]
    return best if worth and min(best[1:]) >= 0 else None


def _most_shards(length: int, sizes: Sequence[int]) -> int:
    """The most parts into which axes of these sizes divide a dim evenly."""
    chosen = (
        math.prod(some)
        for count in range(len(sizes) + 1)
        for some in itertools.combinations(sizes, count)
    )
    return max(parts for parts in chosen if length % parts == 0)


def _finding(
    each: PlacedArgument, dim: int, length: int, mesh: Mesh, longer: int, gain_s: float, saved: int
) -> Finding:
    gain = f", and a step may take up to {seconds(gain_s)} less" if gain_s else ""
    return Finding(
        "uneven-dim",
        f"dim {dim} of {each.name} has size {length:,}, which no axis of"
        f" {'x'.join(str(n) for _, n in mesh.axes)} divides",
        f"pad it to {longer:,} (+{100 * (longer / length - 1):.2g}%): each device may then hold"
        f" {size(saved)} less of it{gain}",
        gain_s,
        saved,
    )


def _seconds_of(account: Account, name: str) -> float:
    """Seconds per step of the products with a parameter, and of what else is in parts of the model
    that have no other parameter."""
    weights: dict[tuple[str, ...], set[str]] = {}
    for part in account.parts:
        if part.weight:
            weights.setdefault(part.path, set()).add(part.weight)
    alone = {path for path, own in weights.items() if own == {name}}
    return sum(
        part.seconds
        for part in account.parts
        if part.weight == name or (not part.weight and part.path in alone)
    )
