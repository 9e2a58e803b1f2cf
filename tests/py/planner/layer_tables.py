"""Made-up prices of the layers of small programs, and every pipeline of these."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.cluster import Cluster, Device, Level
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of, mesh_views, submesh_sizes
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute
from shardc.planner.layer_samples import Layers
from shardc.planner.prices.derived import More, shares
from shardc.planner.prices.layer_cost import LayerCost
from shardc.planner.prices.points import KEEPING, POINTS, Points, derived_from
from shardc.planner.prices.sends import Sends, Sent
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work

LIMIT = 1_000_000  # bytes of a device


@dataclass
class Tables:
    """What `LayerCosts` knows of a program, with prices from tables.

    A layer takes a time for each microbatch and one that shrinks with it, and longer if its rows do
    not divide over the devices of a node. A higher price is no faster and holds no more; more
    recomputation takes longer and keeps less.

    Attributes:
        machine: the cluster.
        counts: numbers of microbatches.
        kinds: of each layer.
        of_view: numbers of each view and kind, drawn when first asked for.
        again: of each recomputation of `points`, the share of the stash that is kept.
        readers: the layers that read the same argument, a share of their state.
        rows: of the batch.
        uneven_s: seconds of a microbatch, for each device of a node without rows of its own.
    """

    machine: Cluster
    counts: tuple[int, ...]
    kinds: tuple[int, ...]
    points: Points
    again: dict[Recompute, float]
    full_is_worth: bool
    readers: tuple[int, ...]
    sent: tuple[tuple[int, int], ...]
    seed: int
    scale_s: float
    talk: float
    memory: float
    rows: int = 1 << 12
    uneven_s: float = 0.0
    work: int = 0
    known: set[Any] = field(default_factory=set)
    costs: dict[Any, LayerCost] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> Layers:
        origins = tuple((row, 0) for row in range(len(self.kinds)))
        shared: list[tuple[tuple[int, int], ...]] = [() for _ in self.kinds]
        for earlier, later in itertools.pairwise(self.readers):
            shared[later] = ((earlier, 0),)
        unlike = tuple(sorted(set(self.kinds)))
        arguments = dict.fromkeys(unlike, ("arg0",))
        return Layers(origins, self.kinds, self.kinds, origins, unlike, arguments, tuple(shared))

    def cost(self, view: Mesh, count: int, point: int, kind: int) -> LayerCost:
        """Prices a layer, and remembers that."""
        self.work += 1
        self.known.add((view, count, point, kind))
        return self.true_cost(view, count, point, kind)

    def true_cost(self, view: Mesh, count: int, point: int, kind: int) -> LayerCost:
        """The price of a layer."""
        key = view, count, point, kind
        if key not in self.costs:
            self.costs[key] = self._made_up(*key)
        return self.costs[key]

    def _made_up(self, view: Mesh, count: int, point: int, kind: int) -> LayerCost:
        base = derived_from(self.points, point)
        if base is not None:
            recompute = self.points[point].recompute
            return self.more(count, recompute, kind).of(self.true_cost(view, count, base, kind))
        rng = np.random.default_rng([self.seed, kind, *view.shape])
        own = np.random.default_rng([self.seed, kind])
        size, full = len(view.device_ids), self.points[point].recompute == "full"
        drawn = own.choice([0.25, 0.5, 1.0, 2.0], 7)
        ideal_s, state, stash, body, update, following, before = drawn
        worse, fixed, held, argument, once = rng.choice([0.0, 0.1, 0.3, 0.6, 1.0], 5)
        slower = np.cumsum([0.0, *rng.choice([0.0, 0.02, 0.2], 2)])
        smaller = np.cumprod([1.0, *rng.choice([1.0, 0.8, 0.4], 2)])
        step = (0.0, 0.1, 1.0).index(self.points[point].price)
        talk = self.talk * worse * (size - 1)
        each_s = ideal_s / size / count * (1.0 + talk) + self.scale_s * fixed
        forward_s, backward_s = each_s * (1 + slower[step]) / 3, each_s * (1 + slower[step]) / 1.5
        unit = self.memory * LIMIT * smaller[step] / size**held
        kept = unit * stash / count
        temporary = self.memory * LIMIT * body / size / count
        inside = min(size, self.machine.num_devices_per_node)
        uneven_s = self.uneven_s * (inside - shares(self.rows, count, inside))
        forward_s, backward_s = forward_s + uneven_s, backward_s + 2 * uneven_s
        fixed_s = self.scale_s * fixed * (1 + slower[step]) + 3 * uneven_s
        least_s = fixed_s / 3, fixed_s / 1.5
        if full:
            backward_s += forward_s
            least_s = least_s[0], least_s[1] + least_s[0]
            temporary += (1.0 - self.again["full"]) * kept
            kept *= self.again["full"]
        memory = LayerMemory(
            unit * state,
            kept,
            temporary,
            self.memory * LIMIT * update / size / 4,
            unit * following / 8,
            kept / 4,
            self.memory * LIMIT * before / size / 2,
        )
        return LayerCost(
            forward_s,
            backward_s,
            ideal_s * once / 8,
            ideal_s,
            memory,
            (unit * state * argument,),
            least_s,
        )

    def is_known(self, view: Mesh, count: int, point: int) -> bool:
        return all((view, count, point, kind) in self.known for kind in set(self.kinds))

    def more(self, count: int, recompute: Recompute, kind: int) -> More:
        return More(1.5 - self.again[recompute] / 2, self.again[recompute])

    def keeps_less(self, count: int, recompute: Recompute) -> bool:
        return recompute != "full" or self.full_is_worth

    def least_stash(self, count: int, recompute: Recompute) -> dict[int, float]:
        """What is held on the view, and at the price, where that is least."""
        sizes = submesh_sizes(self.machine)
        views = [view for size in sizes for view in mesh_views(self.machine, 0, size)]
        points = [n for n, point in enumerate(self.points) if point.recompute == recompute]

        def bytes_on(view: Mesh, point: int, kind: int) -> float:
            own = self.true_cost(view, count, point, kind).memory.stash_bytes
            return own * len(view.device_ids)

        return {
            kind: min(bytes_on(view, point, kind) for view in views for point in points)
            for kind in set(self.kinds)
        }

    def has(self, count: int) -> bool:
        return True

    def sends(self, count: int) -> Sends:
        ahead, back = zip(*self.sent, strict=True)
        there, home = ([n // count for n in each] for each in (ahead, back))
        return Sends(tuple(map(Sent, there, there)), tuple(map(Sent, home, home)))

    # ---- a look at everything ----

    def all_pipelines(self, schedules: Sequence[str]) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Step time and sizes of every pipeline that fits."""
        stages = list(_fillings(self.machine, len(self.kinds)))
        found: dict[Any, float] = {}

        def own_s(first: int, last: int, size: int, count: int, held: int) -> float:
            key = first, last, size, count, held
            if key not in found:
                found[key] = self._stage_s(*key)
            return found[key]

        for count, name, sizes in itertools.product((1, *self.counts), schedules, stages):
            held = schedule_named(name).in_flight(Work(len(sizes), count))
            sent = self._sent_s(sizes, count)
            for cuts in itertools.combinations(range(1, len(self.kinds)), len(sizes) - 1):
                ends = list(itertools.pairwise((0, *cuts, len(self.kinds))))
                trip_s = period_s = 0.0
                for stage in reversed(range(len(sizes))):
                    first, end = ends[stage]
                    each_s = own_s(first, end - 1, sizes[stage], count, held[stage])
                    ahead_s, back_s = 0.0, 0.0
                    if stage < len(sizes) - 1:
                        ahead_s, back_s = sent[stage][self.kinds[end - 1]]
                    trip_s += each_s + ahead_s + back_s
                    shared = self._takes_turns(sizes, stage)
                    link_s = ahead_s + back_s if shared else max(ahead_s, back_s)
                    period_s = max(period_s, each_s, link_s)
                    if held[stage] < count:
                        waits = (count - held[stage]) / held[stage]
                        period_s = max(period_s, waits * trip_s / (count - 1))
                if trip_s < math.inf:
                    yield trip_s + (count - 1) * period_s, sizes

    def _takes_turns(self, sizes: Sequence[int], stage: int) -> bool:
        """Whether what crosses after a stage, and its gradient, take the same way in or out: of
        whole nodes, or of what shares its node with two others; not of two equal stages."""
        per_node, pair = self.machine.num_devices_per_node, sizes[stage : stage + 2]
        if (len(set(sizes)) == 1 and len(sizes) == 2) or len(pair) == 1:
            return False
        crosses = sum(sizes[: stage + 1]) % per_node == 0
        return max(pair) >= per_node if crosses else sum(pair) != per_node

    def _sent_s(self, sizes: Sequence[int], count: int) -> list[list[tuple[float, float]]]:
        """Per stage and kind of its last layer, to the next stage and back."""
        ends = list(itertools.accumulate(sizes, initial=0))
        meshes = [mesh_of((b - a,), range(a, b)) for a, b in itertools.pairwise(ends)]
        model = CostModel(self.machine)
        return [
            [
                (model.transfer_s(a, b, ahead // count), model.transfer_s(b, a, back // count))
                for ahead, back in self.sent
            ]
            for a, b in itertools.pairwise(meshes)
        ]

    def _stage_s(self, first: int, last: int, size: int, count: int, held: int) -> float:
        """The fastest way to run a stage that fits: on one view, each layer at a point, or as large
        a share of all as fits at the next faster one."""
        best = math.inf
        for view in mesh_views(self.machine, 0, size):
            faster: tuple[Recompute, float, float] | None = None
            for point, (_, level) in enumerate(self.points):
                if level == "full" and not self.full_is_worth:
                    continue
                seconds, peak = self._all_at(view, count, point, held, first, last)
                if peak <= LIMIT:
                    best = min(best, seconds)
                    if faster is not None and faster[0] == level and faster[2] > LIMIT:
                        share = (LIMIT - peak) / max(faster[2] - peak, 1.0)
                        best = min(best, share * faster[1] + (1 - share) * seconds)
                faster = level, seconds, peak
        return best

    def _all_at(
        self, view: Mesh, count: int, point: int, held: int, first: int, last: int
    ) -> tuple[float, float]:
        """Seconds of a microbatch and peak bytes of some layers at one point."""
        own = range(first, last + 1)
        costs = [self.true_cost(view, count, point, self.kinds[layer]) for layer in own]
        memory = [cost.memory for cost in costs]
        again = [layer for layer in own if layer in self.readers[1:]]
        twice = sum(
            costs[layer - first].argument_bytes[0]
            for layer in again
            if any(other in self.readers for other in range(first, layer))
        )
        state = sum(m.state_bytes for m in memory) - twice
        stash = sum(m.stash_bytes for m in memory) + memory[0].received_bytes
        running = held * stash + max(m.body_bytes for m in memory)
        updating = sum(m.next_bytes for m in memory) + max(m.update_bytes for m in memory)
        starting = max(m.before_bytes for m in memory)
        seconds = sum(c.forward_s + c.backward_s + c.once_s / count for c in costs)
        return seconds, state + max(starting, running, updating)


def _fillings(machine: Cluster, most: int) -> Iterator[tuple[int, ...]]:
    """Sizes of up to `most` stages that fill the devices: each inside a node, or of whole ones."""
    host = machine.num_devices_per_node

    def rest(start: int, left: int) -> Iterator[tuple[int, ...]]:
        if start == machine.num_devices:
            yield ()
        for size in submesh_sizes(machine) if left else ():
            inside = start % host + size <= host or (start % host == 0 and size % host == 0)
            if inside and start + size <= machine.num_devices:
                for others in rest(start + size, left - 1):
                    yield size, *others

    return rest(0, most)


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Programs of up to 6 layers on up to 8 devices."""
    num_layers = draw(st.integers(1, 6))
    kinds = draw(st.lists(st.integers(0, 2), min_size=num_layers, max_size=num_layers))
    nodes, per_node = draw(st.sampled_from([(1, 2), (1, 4), (2, 2), (1, 8), (2, 4), (4, 2)]))
    latency_s = draw(st.sampled_from([0.0, 0.01]))
    levels = Level("node", per_node, 1e8, 0.0), Level("network", nodes, 1e6, latency_s)
    machine = Cluster("test", Device("test", LIMIT, {"default": 1e12}, 1e12), levels)
    readers = draw(st.sets(st.integers(0, num_layers - 1)))
    sent = draw(st.sampled_from([0, 1000, 100_000, 1_000_000]))
    seed = draw(st.integers(0, 1 << 20))
    rng = np.random.default_rng(seed)
    amounts = rng.integers(0, sent + 1, (max(kinds) + 1, 2))
    return Tables(
        machine,
        draw(st.sampled_from([(2, 4), (2, 8), (2, 4, 8, 16), (3, 6), (32,)])),
        tuple(kinds),
        draw(st.sampled_from([POINTS, KEEPING])),
        {"none": 1.0, "selective": 0.7, "user": 0.4, "full": draw(st.sampled_from([0.1, 0.3]))},
        draw(st.booleans()),
        tuple(sorted(readers)),
        tuple((int(a), int(b)) for a, b in amounts),
        seed,
        draw(st.sampled_from([0.0, 0.01, 0.1])),
        draw(st.sampled_from([0.1, 1.0, 3.0])),
        draw(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.8])),
        draw(st.sampled_from([96, 192, 3 << 12])),
        draw(st.sampled_from([0.0, 0.01, 0.1])),
    )
