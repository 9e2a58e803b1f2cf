"""The meshes that a stage may have, by number of devices, and those of them in doubt."""

import math
from collections.abc import Sequence

from shardc.cluster import Cluster
from shardc.cost.links import Link, axis_links
from shardc.cost.submeshes import mesh_of, mesh_views, submesh_sizes
from shardc.options import PlanOptions
from shardc.plan.layout import Mesh


class Views:
    """The views of submeshes: for each number of devices the meshes that a stage may have.

    Attributes:
        doubtful: views that are priced only if others of their size occur in the best pipelines.
    """

    def __init__(
        self, views: dict[int, list[Mesh]], doubtful: frozenset[Mesh], cluster: Cluster
    ) -> None:
        self.doubtful, self._cluster = doubtful, cluster
        self._views = {size: sorted(v, key=doubtful.__contains__) for size, v in views.items()}
        self._axes: dict[Mesh, list[tuple[int, Link]]] = {}

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted(self._views))

    def of(self, size: int) -> Sequence[Mesh]:
        """All views of a size, those in doubt last."""
        return self._views[size]

    def first(self, size: int) -> Sequence[Mesh]:
        """The views that are not in doubt; all of them if there are none."""
        return [view for view in self._views[size] if view not in self.doubtful] or self.of(size)

    def are_alike(self, view: Mesh, other: Mesh) -> bool:
        """Whether they differ only in the order of their axes."""
        return self._sorted_axes(view) == self._sorted_axes(other)

    def _sorted_axes(self, view: Mesh) -> list[tuple[int, Link]]:
        if view not in self._axes:
            links = axis_links(self._cluster, view)
            axes = [(size, links[name]) for name, size in view.axes]
            self._axes[view] = sorted(axes, key=repr)
        return self._axes[view]


def stage_views(cluster: Cluster, options: PlanOptions) -> Views:
    """The views that a plan may use; none on an island smaller than the requested mesh."""
    if options.mesh == "auto":
        views = {size: mesh_views(cluster, 0, size) for size in submesh_sizes(cluster)}
    elif (size := math.prod(options.mesh)) > cluster.num_devices:
        views = {}
    else:
        views = {size: [mesh_of(options.mesh, range(size), options.mesh_axes)]}
    doubtful = (view for each in views.values() for view in each if _is_doubtful(view, cluster))
    return Views(views, frozenset(doubtful), cluster)


def _is_doubtful(view: Mesh, cluster: Cluster) -> bool:
    """Whether a view has two axes inside a node, or an axis across nodes that is not a node."""
    per_node = cluster.num_devices_per_node
    inside = len(view.device_ids) <= per_node
    return len(view.shape) > 1 if inside else view.shape[-1] != per_node
