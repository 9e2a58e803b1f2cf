"""The cost of one layer."""

from dataclasses import dataclass, replace

from shardc.analysis.shardings.memory_report import LayerMemory


@dataclass(frozen=True)
class LayerCost:
    """One layer at one point, on one device of a view.

    Attributes:
        forward_s, backward_s: per microbatch.
        once_s: per step, before and after the microbatches.
        ideal_s: per step, if all its ops were split evenly and nothing were sent.
        memory: its memory.
        least_s: the parts of forward_s and of backward_s that smaller microbatches take, too.
        least_ideal_s: the same of ideal_s, for each microbatch.
        argument_bytes: of each of `Layers.arguments`, 0 unless held throughout the step: a stage
            holds once what several of its layers read.
    """

    forward_s: float
    backward_s: float
    once_s: float
    ideal_s: float
    memory: LayerMemory
    argument_bytes: tuple[float, ...] = ()
    least_s: tuple[float, float] = (0.0, 0.0)
    least_ideal_s: float = 0.0

    def ideal_in(self, count: int, other: int) -> float:
        """`ideal_s` in `other` microbatches, of a cost in `count`."""
        return max(self.ideal_s + (other - count) * self.least_ideal_s, 0.0)

    def scaled(self, ratio: float) -> "LayerCost":
        """The cost for microbatches `ratio` times as large."""
        forward, backward = self.least_s
        return replace(
            self,
            forward_s=forward + (self.forward_s - forward) * ratio,
            backward_s=backward + (self.backward_s - backward) * ratio,
            memory=self.memory.scaled(ratio),
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
        )
