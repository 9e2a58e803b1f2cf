"""The cost of one layer."""

from dataclasses import dataclass, replace

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.cost.model import Dispatch

type Dispatches = tuple[Dispatch, ...]


@dataclass(frozen=True)
class LayerCost:
    """One layer at one point, on one device of a view.

    Attributes:
        forward_s, backward_s: per microbatch.
        once_s: per step, before and after the microbatches.
        ideal_s: per step, if all its ops were split evenly and nothing were sent.
        memory: its memory.
        least_s: the parts of forward_s and of backward_s that smaller microbatches take, too,
            without the host's.
        least_ideal_s: the same of ideal_s, for each microbatch.
        argument_bytes: of each of `Layers.arguments`, 0 unless held throughout the step: a stage
            holds once what several of its layers read.
        dispatches: the host's work in forward_s and in backward_s.
    """

    forward_s: float
    backward_s: float
    once_s: float
    ideal_s: float
    memory: LayerMemory
    argument_bytes: tuple[float, ...] = ()
    least_s: tuple[float, float] = (0.0, 0.0)
    least_ideal_s: float = 0.0
    dispatches: tuple[Dispatches, Dispatches] = ((), ())

    def ideal_in(self, count: int, other: int) -> float:
        """`ideal_s` in `other` microbatches, of a cost in `count`."""
        return max(self.ideal_s + (other - count) * self.least_ideal_s, 0.0)

    def scaled(self, ratio: float) -> "LayerCost":
        """The cost for microbatches `ratio` times as large."""
        passes = zip((self.forward_s, self.backward_s), self.least_s, self.dispatches, strict=True)
        (forward_s, forward), (backward_s, backward) = (_scaled(*each, ratio) for each in passes)
        return replace(
            self,
            forward_s=forward_s,
            backward_s=backward_s,
            memory=self.memory.scaled(ratio),
            dispatches=(forward, backward),
        )

    def between(self, other: "LayerCost", share: float) -> "LayerCost":
        """Linear interpolation (or extrapolation) towards `other`, with no cost below 0."""

        def mixed(a: float, b: float) -> float:
            return max(a + share * (b - a), 0.0)

        return LayerCost(
            mixed(self.forward_s, other.forward_s),
            mixed(self.backward_s, other.backward_s),
            mixed(self.once_s, other.once_s),
            mixed(self.ideal_s, other.ideal_s),
            self.memory.between(other.memory, share),
            tuple(map(mixed, self.argument_bytes, other.argument_bytes)),
            self.least_s,
            self.least_ideal_s,
            self.dispatches,
        )


def _scaled(
    seconds: float, least_s: float, dispatches: Dispatches, ratio: float
) -> tuple[float, Dispatches]:
    """A pass over a microbatch `ratio` times as large, and the host's work in it."""
    device_s = seconds - sum(each.exposed_s() for each in dispatches)
    scaled_s = least_s + (device_s - least_s) * ratio
    longer = scaled_s / device_s if device_s > 0.0 else ratio
    exposed_s = sum(each.exposed_s(longer) for each in dispatches)
    return scaled_s + exposed_s, tuple(
        each._replace(device_s=longer * each.device_s) for each in dispatches
    )
