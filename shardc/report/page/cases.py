"""One program on many machines: what each of them would take."""

from collections.abc import Sequence

import msgspec

from shardc.plan.alternatives import Alternative


class Case(msgspec.Struct, frozen=True):
    """A machine and a batch, and the plan for them.

    Attributes:
        cluster, devices, memory_bytes: of the machine; memory of one device.
        device: the name of its devices.
        batch: size of the batch; None: that of the program.
        fits: whether there is a plan; the fields from `step_s` on are None without one.
        tokens_per_s: None if the batch holds no tokens.
        device_s: device-seconds per step.
        price: of a step, if a price of the cluster was given.
        parallelism: of the plan, or why there is none.
        judged: the plan and the other pipelines that were considered, as `Alternatives.ranked`.
    """

    cluster: str
    device: str
    devices: int
    memory_bytes: int
    batch: int | None
    fits: bool
    parallelism: str
    step_s: float | None = None
    tokens_per_s: float | None = None
    peak_bytes: int | None = None
    device_s: float | None = None
    price: float | None = None
    judged: tuple[Alternative, ...] = ()

    @property
    def next_best(self) -> Alternative | None:
        """The fastest other pipeline that was planned; None if no other one fits."""
        others = (each for each in self.judged[1:] if each.exact is not None)
        return next(others, None)

    @property
    def cost(self) -> float:
        """Per example: the price if it is known, device-seconds otherwise."""
        known = self.device_s if self.price is None else self.price
        assert known is not None, "only plans that fit have a cost"
        return known / (self.batch or 1)


def cheapest(cases: Sequence[Case]) -> tuple[int, ...]:
    """The cases that cost least per example: one if all have a price; otherwise one for each kind
    of device, because seconds of unlike devices do not compare."""
    fitting = [n for n, case in enumerate(cases) if case.fits]
    priced = all(cases[n].price is not None for n in fitting)
    kinds = dict.fromkeys("" if priced else cases[n].device for n in fitting)
    return tuple(
        min((n for n in fitting if priced or cases[n].device == kind), key=lambda n: cases[n].cost)
        for kind in kinds
    )
