"""Pipelines considered for one program, ranked, and a breakdown of their step times."""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from shardc.plan.layout import Mesh, device_groups


class Terms(msgspec.Struct, frozen=True):
    """Breakdown of the predicted step time, for the busiest devices.

    Attributes:
        step_time_s: the sum of the three below.
        compute_s: ops of the busiest stage (of all stages on its devices).
        communication_s: reshards and reductions inside it.
        waiting_s: pipeline fill and drain, and waiting for transfers between stages.
        peak_bytes: of the device that holds the most.
    """

    step_time_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    peak_bytes: int


class Alternative(msgspec.Struct, frozen=True):
    """A pipeline that was considered.

    Attributes:
        name: who proposed it: "search", or the name of a hand-written plan.
        meshes: mesh shape of each stage.
        layers: number of layers per stage; () if unknown.
        estimate_s: step time predicted from the prices of its layers; None: not estimated.
        exact: prediction of its exact plan; None: not planned.
        missing_bytes: by how much the smallest plan found exceeds a device's memory.
        refusal: why the program does not allow it; "" if it does.
        by_hand: whether a person wrote it, or would, whatever the search found.
    """

    name: str
    num_microbatches: int
    schedule: str
    meshes: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...] = ()
    estimate_s: float | None = None
    exact: Terms | None = None
    missing_bytes: int = 0
    refusal: str = ""
    by_hand: bool = False

    @property
    def step_time_s(self) -> float:
        """The best known time, planned before estimated; infinite if it does not fit."""
        if self.missing_bytes or self.refusal:
            return math.inf
        if self.exact is not None:
            return self.exact.step_time_s
        return math.inf if self.estimate_s is None else self.estimate_s


class Alternatives(msgspec.Struct, frozen=True):
    """All pipelines that were considered.

    Attributes:
        ranked: as `rank` does.
        all_priced: whether the search priced every promising shape.
    """

    ranked: tuple[Alternative, ...]
    all_priced: bool = True

    def shown(self, most: int) -> list[tuple[int, Alternative]]:
        """The first `most`, and all that are by hand, each with its rank."""
        numbered = enumerate(self.ranked, 1)
        return [(number, each) for number, each in numbered if number <= most or each.by_hand]


def rank(found: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Those planned exactly, fastest first; then estimates (without reshards between layers),
    fastest first; then those that do not fit, smallest excess first; then those refused."""

    def key(each: Alternative) -> tuple[bool, float, bool, int]:
        return each.exact is None, each.step_time_s, bool(each.refusal), each.missing_bytes

    return tuple(sorted(found, key=key))


class StageCost(Protocol):
    """What a step takes of the devices of a stage, as in `shardc.plan.predicted.StageReport`."""

    @property
    def objective(self) -> float: ...
    @property
    def communication_s(self) -> float: ...
    @property
    def peak_bytes(self) -> int: ...


def split_step(step_s: float, meshes: Sequence[Mesh], stages: Sequence[StageCost]) -> Terms:
    """Breakdown of a step's time by the costs of its stages, one per mesh."""
    objectives = [stage.objective for stage in stages]
    communications = [stage.communication_s for stage in stages]
    busy_s, communication_s = max(
        (group.total(objectives), group.total(communications))
        for group in device_groups(enumerate(meshes))
    )
    return Terms(
        step_time_s=step_s,
        compute_s=busy_s - communication_s,
        communication_s=communication_s,
        waiting_s=step_s - busy_s if step_s > busy_s * (1.0 + 1e-9) else 0.0,  # rounding
        peak_bytes=max(stage.peak_bytes for stage in stages),
    )


def mesh_words(meshes: Sequence[tuple[int, ...]]) -> str:
    """`2 x (4x2)`, `1 x (4x2) + 3 x (8)`: runs of equal meshes are grouped."""
    runs: list[tuple[int, tuple[int, ...]]] = []
    for shape in meshes:
        if runs and runs[-1][1] == shape:
            runs[-1] = runs[-1][0] + 1, shape
        else:
            runs.append((1, shape))
    return " + ".join(f"{count} x ({'x'.join(map(str, shape)) or '1'})" for count, shape in runs)
