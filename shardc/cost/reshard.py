"""The steps from one sharding of a value to another inside a mesh, and their cost.

The planner prices exactly the steps that `shardc-lower-collectives` emits.
"""

import functools
import heapq
import math
from collections.abc import Iterable, Sequence

import msgspec

from shardc.cost.links import Link, Links
from shardc.cost.reshard_moves import Move, Moves, ReshardStep
from shardc.errors import PlanError
from shardc.plan.layout import Mesh, TensorSharding

# Added per collective during the search, so that the shorter of two equally fast ways wins.
TIE_BREAK_S = 1e-10


class Reshard(msgspec.Struct, frozen=True):
    """The steps, their time, and the bytes that one device sends; inf and no steps: impossible."""

    steps: tuple[ReshardStep, ...]
    seconds: float
    num_bytes: float


IMPOSSIBLE = Reshard((), math.inf, math.inf)


def reshard_steps(
    source: TensorSharding,
    target: TensorSharding,
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    links: Links,
    sum_itemsize: int = 0,
) -> tuple[ReshardStep, ...]:
    """The cheapest sequence of collectives that turns `source` into `target`; () if they agree.

    A shortest path through all shardings of the value, so it includes hierarchical sequences: to
    gather over a slow axis, slice over a fast one first and gather that afterwards.

    Args:
        shape: global shape of the value; a dim must be divisible by the axes that split it.
        itemsize: bytes of one element.
        links: of each mesh axis, from `axis_links`.
        sum_itemsize: bytes of one element while the value is a partial sum; 0: the same.
    Raises:
        PlanError: SHARDC-210, `target` is unreduced over an axis over which `source` is not, or
            one of them is not a sharding of this shape on this mesh.
    """
    found = reshard(source, target, mesh, shape, itemsize, links, sum_itemsize)
    if found is IMPOSSIBLE:
        raise PlanError(
            f"a value of shape {tuple(shape)} cannot go from {describe(source)} to"
            f" {describe(target)} on a mesh of {dict(mesh.axes)}",
            help="only axes that divide a dim can split it, and a whole value cannot become"
            " unreduced; plan again",
            code="SHARDC-210",
        )
    return found.steps


def reshard(
    source: TensorSharding,
    target: TensorSharding,
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    links: Links,
    sum_itemsize: int = 0,
) -> Reshard:
    """Steps, seconds and bytes at once; `IMPOSSIBLE` if `reshard_steps` would raise."""
    ((found,),) = reshards([source], [target], mesh, shape, itemsize, links, sum_itemsize)
    return found


def reshards(
    sources: Iterable[TensorSharding],
    targets: Iterable[TensorSharding],
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    links: Links,
    sum_itemsize: int = 0,
) -> list[list[Reshard]]:
    """`reshard` of one value for all pairs of shardings: [source][target]."""
    num_devices = len(mesh.device_ids)
    divisors = tuple(math.gcd(size, num_devices) for size in shape)
    elements = math.prod(shape)
    num_bytes = (elements * itemsize, elements * (sum_itemsize or itemsize))
    value = mesh.axes, divisors, num_bytes, tuple(links.items())
    ends = [
        (_canonical(target), set(target.unreduced), _is_valid(target, mesh.axes, divisors))
        for target in targets
    ]
    found = []
    for source in sources:
        if not _is_valid(source, mesh.axes, divisors):
            found.append([IMPOSSIBLE] * len(ends))
            continue
        search, sums = _search(_canonical(source), *value), set(source.unreduced)
        found.append(
            [
                search.to(target) if valid and unreduced <= sums else IMPOSSIBLE
                for target, unreduced, valid in ends
            ]
        )
    return found


def describe(sharding: TensorSharding) -> str:
    """In words: `[x, -, y*z]`, followed by `unreduced over w` if it is."""
    dims = ", ".join("*".join(axes) or "-" for axes in sharding.dims)
    unreduced = f" unreduced over {', '.join(sharding.unreduced)}" if sharding.unreduced else ""
    return f"[{dims}]{unreduced}"


def is_valid(sharding: TensorSharding, mesh: Mesh, shape: Sequence[int]) -> bool:
    """Whether `sharding` has the right rank, uses each mesh axis at most once, divides evenly."""
    return _is_valid(sharding, mesh.axes, tuple(shape))


@functools.lru_cache(maxsize=1 << 16)
def _is_valid(
    sharding: TensorSharding, mesh_axes: tuple[tuple[str, int], ...], divisors: tuple[int, ...]
) -> bool:
    sizes = dict(mesh_axes)
    used = (*sharding.axes, *sharding.unreduced)
    if len(sharding.dims) != len(divisors) or len(set(used)) != len(used):
        return False
    if not all(axis in sizes for axis in used):
        return False
    return all(
        divisor % math.prod(sizes[axis] for axis in axes) == 0
        for divisor, axes in zip(divisors, sharding.dims, strict=True)
    )


Axes = tuple[tuple[str, int], ...]
LinkItems = tuple[tuple[str, Link], ...]


def _canonical(sharding: TensorSharding) -> TensorSharding:
    """Sorts the unreduced axes, which have no order, so that equal shardings compare equal."""
    return TensorSharding(sharding.dims, tuple(sorted(sharding.unreduced)))


@functools.lru_cache(maxsize=1 << 14)
def _search(
    source: TensorSharding,
    axes: Axes,
    divisors: tuple[int, ...],
    num_bytes: tuple[int, int],
    links: LinkItems,
) -> "_Search":
    return _Search(source, dict(axes), divisors, num_bytes, dict(links))


class _Search:
    """Dijkstra's algorithm from one sharding to all others, run only as far as requested."""

    def __init__(
        self,
        source: TensorSharding,
        sizes: dict[str, int],
        divisors: tuple[int, ...],
        num_bytes: tuple[int, int],
        links: dict[str, Link],
    ) -> None:
        self.moves = Moves(sizes, divisors, *num_bytes, links)
        self.best = {source: 0.0}
        self.arrived: dict[TensorSharding, tuple[TensorSharding, Move] | None] = {source: None}
        self.settled: set[TensorSharding] = set()
        self.queue: list[tuple[float, int, TensorSharding]] = [(0.0, 0, source)]
        self.pushed = 1
        self.found: dict[TensorSharding, Reshard] = {}

    def to(self, target: TensorSharding) -> Reshard:
        """The cheapest way from the source to `target`, which must be reachable."""
        found = self.found.get(target)
        if found is None:
            found = self.found[target] = self._to(target)
        return found

    def _to(self, target: TensorSharding) -> Reshard:
        while target not in self.settled:
            distance, _, state = heapq.heappop(self.queue)
            if state in self.settled:
                continue
            self.settled.add(state)
            for move in self.moves.of(state):
                reached = distance + move.seconds + TIE_BREAK_S
                if reached < self.best.get(move.step.result, math.inf):
                    self.best[move.step.result] = reached
                    self.arrived[move.step.result] = (state, move)
                    heapq.heappush(self.queue, (reached, self.pushed, move.step.result))
                    self.pushed += 1
        way: list[Move] = []
        before = self.arrived[target]
        while before is not None:
            state, move = before
            way.append(move)
            before = self.arrived[state]
        way.reverse()
        return Reshard(
            _merged([move.step for move in way]),
            sum(move.seconds for move in way),
            sum(move.num_bytes for move in way),
        )


def _merged(steps: list[ReshardStep]) -> tuple[ReshardStep, ...]:
    """Merges adjacent gathers, slices or reduce-scatters of one dim into one step."""
    merged: list[ReshardStep] = []
    for step in steps:
        last = merged[-1] if merged else None
        if last is None or step.dim is None or (last.kind, last.dim) != (step.kind, step.dim):
            merged.append(step)
            continue
        gathers = step.kind == "all_gather"
        axes = (*step.axes, *last.axes) if gathers else (*last.axes, *step.axes)
        merged[-1] = ReshardStep(step.kind, axes, step.result, step.dim)
    return tuple(merged)
