"""The description of a plan, as data: the source of text, JSON and the HTML report."""

import msgspec

from shardc.plan.alternatives import Alternative, Terms
from shardc.plan.notes import size
from shardc.plan.predicted import Memory
from shardc.report.summary import seconds


class AxisWords(msgspec.Struct, frozen=True):
    """The role of one axis of a stage's mesh.

    Attributes:
        words: in the field's terms, such as "data parallel 92 %, ZeRO-1".
        main: the largest role alone, such as "mostly data parallel 92 %".
        flops, num_bytes, state: shares, as in `shardc.plan.account.AxisUse`.
    """

    stage: int
    axis: str
    size: int
    words: str
    main: str
    flops: dict[str, float]
    num_bytes: dict[str, float]
    state: dict[str, float]


class Layers(msgspec.Struct, frozen=True):
    """Products of the forward pass, repeated or not.

    Attributes:
        name: of the repeated part, such as "blocks 0-3"; "" if parameters have no names.
        count: number of consecutive repetitions with other parameters and the same shardings.
        products: one line for each.
    """

    stage: int
    name: str
    count: int
    products: tuple[str, ...]


class Group(msgspec.Struct, frozen=True):
    """Arguments whose names differ only in numbers, and with equal layouts.

    Attributes:
        num_bytes: of all of them, on one device.
    """

    name: str
    kind: str
    stage: int
    count: int
    shape: tuple[int, ...]
    dtype: str
    lies: str
    num_bytes: int


class Alive(msgspec.Struct, frozen=True):
    """Values on a device at the peak of a step, on stages that hold as much of them.

    Attributes:
        stages: such as `0-3`.
        kind, what, count, num_bytes: as in `shardc.plan.account.Alive`.
        name: of arguments, or of the part of the model that makes them.
    """

    stages: str
    kind: str
    name: str
    what: str
    count: int
    num_bytes: int


class Crossing(msgspec.Struct, frozen=True):
    """A transfer from one device group to another in a step."""

    source: int
    target: int
    num_messages: int
    num_bytes: int


class Fit(msgspec.Struct, frozen=True):
    """Whether the plan fits, and where memory peaks; `when` is "" in plans without an account."""

    limit_bytes: int
    peak_bytes: int
    stage: int
    when: str


class Communication(msgspec.Struct, frozen=True):
    """Collectives of one kind over the same axes of a stage, in one step."""

    stage: int
    axes: tuple[str, ...]
    kind: str
    count: float
    num_bytes: int
    seconds: float


class Finding(msgspec.Struct, frozen=True):
    """An avoidable cost.

    Attributes:
        kind: of finding, as `shardc lint` names it.
        seconds: its price per step; None: not priced, because that needs another plan.
        num_bytes: its price on one device; 0 if it has none.
        place: source position, or "".
    """

    kind: str
    words: str
    help: str
    seconds: float | None = None
    num_bytes: int = 0
    place: str = ""

    @property
    def price(self) -> str:
        """`1.2 ms, 3 MiB`; what has no price is left out."""
        known = [] if self.seconds is None else [seconds(self.seconds)]
        known += [size(self.num_bytes)] if self.num_bytes else []
        return ", ".join(known) or "not priced"

    def __str__(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{self.kind} [{self.price}]{place}: {self.words}\n    {self.help}"


class StageWords(msgspec.Struct, frozen=True):
    """A stage in numbers."""

    mesh: str
    devices: str
    layers: str
    num_flops: int
    seconds: float
    peak_bytes: int
    memory: Memory


class Reading(msgspec.Struct, frozen=True):
    """A full description of a plan.

    Attributes:
        headline: the parallelism in one line.
        judged: this plan and the pipelines considered besides it, fastest first.
        num_own_stages: stages without second copies, which follow them in `stages`.
        alive: values at the peak of each stage, largest first.
        has_account: whether the plan file has an account; older ones do not.
        sources: the origin of each number.
    """

    headline: str
    cluster: str
    num_microbatches: int
    schedule: str
    terms: Terms
    stages: tuple[StageWords, ...]
    num_own_stages: int
    axes: tuple[AxisWords, ...]
    layers: tuple[Layers, ...]
    groups: tuple[Group, ...]
    crossings: tuple[Crossing, ...]
    fit: Fit
    communication: tuple[Communication, ...]
    judged: tuple[Alternative, ...]
    warnings: tuple[Finding, ...]
    notes: tuple[str, ...]
    has_account: bool
    sources: dict[str, str]
    alive: tuple[Alive, ...] = ()
