"""The stages of a shape that the search found: their views, and what they recompute."""

from dataclasses import dataclass

from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of, place
from shardc.errors import ClusterError
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape
from shardc.planner.prices.known_prices import KnownPrices
from shardc.planner.proposal import Key
from shardc.solver.pipeline.stages import Pipeline


@dataclass(frozen=True)
class FoundStages:
    """The stages of a pipeline under the prices that it was found with.

    Attributes:
        only: the view of every stage; None: each has the one that is best for it.
    """

    prices: KnownPrices
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

    def estimated_bytes(self, stage: int) -> float:
        """The peak of a stage, by the prices of its layers."""
        held, (first, last, size) = self._held[stage], self.pipeline.stages[stage]
        count = self.key.num_microbatches
        return self.prices.peak_bytes(size, count, held, first, last)

    def with_residency(self, shape: PipelineShape) -> PipelineShape:
        """The shape with what each stage computes again."""
        count = self.key.num_microbatches
        each = [
            self.prices.recompute(size, count, held, first, last, self.only)
            for held, (first, last, size) in zip(self._held, self.pipeline.stages, strict=True)
        ]
        return shape.recomputing(each, self._held)

    def meshes(self, cluster: Cluster, axes: tuple[str, ...]) -> tuple[Mesh, ...] | None:
        """The devices of each stage; None if the stages cannot be placed on the nodes."""
        sizes = [size for *_, size in self.pipeline.stages]
        try:
            firsts = place(cluster, sizes)
        except ClusterError:
            return None
        return tuple(
            mesh_of(view.shape, range(device, device + size), axes)
            for size, device, view in zip(sizes, firsts, self.views, strict=True)
        )
