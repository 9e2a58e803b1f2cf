"""The stages of a shape that the search found: their views, and what they recompute."""

from dataclasses import dataclass

from shardc.plan.layout import Mesh
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.proposal import Key
from shardc.solver.pipeline.stages import Pipeline


@dataclass(frozen=True)
class FoundStages:
    """The stages of a pipeline under the prices that it was found with.

    Attributes:
        only: the view of every stage; None: each has the one that is best for it.
    """

    prices: StagePrices
    key: Key
    pipeline: Pipeline
    only: Mesh | None = None

    @property
    def _held(self) -> list[int]:
        """Per stage, the microbatches in flight."""
        count, behind = self.key.num_microbatches, len(self.pipeline.stages)
        held = (self.prices.in_flight(self.key.schedule, b, count) for b in range(behind))
        return [*held][::-1]

    @property
    def views(self) -> list[Mesh]:
        """The view of each stage."""
        count = self.key.num_microbatches
        return [
            self.prices.view(size, count, held, first, last, self.only)
            for held, (first, last, size) in zip(self._held, self.pipeline.stages, strict=True)
        ]

    @property
    def recompute(self) -> tuple[int, ...]:
        """Per stage, as in `PipelineShape`."""
        count = self.key.num_microbatches
        return tuple(
            held if self.prices.makes_again(size, count, held, first, last, self.only) else 0
            for held, (first, last, size) in zip(self._held, self.pipeline.stages, strict=True)
        )
