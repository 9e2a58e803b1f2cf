"""The search for shapes against a look at all of them, on layers whose costs are made up."""

import itertools
import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.cluster import Cluster, Device, Level
from shardc.cost.submeshes import mesh_views, submesh_sizes
from shardc.options import PlanOptions
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute
from shardc.planner import shapes
from shardc.planner.budget import BUDGET
from shardc.planner.layer_samples import Layers
from shardc.planner.prices.derived import More, shares
from shardc.planner.prices.hopes import Hopes
from shardc.planner.prices.layer_cost import LayerCost
from shardc.planner.prices.layer_costs import tie_breaker
from shardc.planner.prices.points import KEEPING, POINTS, Points
from shardc.planner.prices.sends import Sends, Sent
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.prices.views import Views, stage_views
from shardc.planner.promising import Promising
from shardc.planner.proposal import Found, Key
from shardc.planner.search import Planner
from shardc.planner.shapes import ShapeSearch
from shardc.solver.problem.problem import Problem
from shardc.solver.solve import LimitError

GB = 1 << 30


@dataclass
class MadeUp:
    """Layers of `work_s` device seconds a step, that talk to their submesh and to each other.

    Attributes:
        talk_s: of a microbatch, per device beside the first.
        latency_s: of a microbatch, whatever its size.
        state: bytes of a layer over all devices; a price of 0.1 halves it for a tenth more time, a
            price of 1.0 once more.
        stash: bytes of a layer and step over all devices; a tenth of it is kept where the rest is
            made again.
        readers: the layers whose state is the same argument.
        rows: of the batch.
        uneven_s: of a microbatch, for each device without rows of its own.
    """

    num_layers: int = 4
    work_s: float = 1.0
    talk_s: float = 0.0
    latency_s: float = 0.0
    state: float = 0.0
    send_bytes: int = 0
    work: int = 0
    asked: set[Any] = field(default_factory=set)
    refused: tuple[int, ...] = ()
    stash: float = 0.0
    slower_on: dict[tuple[int, ...], float] = field(default_factory=dict)  # by the view's shape
    readers: tuple[int, ...] = ()
    points: Points = POINTS
    rows: int = 1 << 12
    uneven_s: float = 0.0

    @property
    def layers(self) -> Layers:
        rows = range(self.num_layers)
        origins = tuple((row, 0) for row in rows)
        kinds = (0,) * self.num_layers
        shared: list[tuple[tuple[int, int], ...]] = [() for _ in rows]
        for earlier, later in itertools.pairwise(self.readers):
            shared[later] = ((earlier, 0),)
        return Layers(origins, kinds, kinds, origins[:1], (0,), {0: ("arg0",)}, tuple(shared))

    def cost(self, view: Mesh, count: int, point: int, kind: int) -> LayerCost:
        self.work += (view, count, point) not in self.asked
        self.asked.add((view, count, point))
        price, recompute = self.points[point]
        again = ("none", "selective", "user", "full").index(recompute) / 3 if self.stash else 0.0
        again = again if self.points is KEEPING else float(recompute == "full")
        price = (0.0, 0.1, 1.0).index(price)
        size = len(view.device_ids)
        seconds = self.work_s / count / size + self.latency_s + self.talk_s * (size - 1) / count
        seconds += self.uneven_s * (size - shares(self.rows, count, size))
        slower = (1.0 + 0.1 * price) * self.slower_on.get(view.shape, 1.0)
        made = self.stash / size / count
        kept, body = made * (1.0 - 0.9 * again), made * (again > 0.0)
        memory = LayerMemory(self.state / size / 2**price, kept, body, 0.0)
        half_s = seconds * slower / 2
        arguments = (memory.state_bytes,)
        return LayerCost(half_s, half_s * (1 + again), 0.0, self.work_s, memory, arguments)

    def is_known(self, view: Mesh, count: int, point: int) -> bool:
        return (view, count, point) in self.asked

    def more(self, count: int, recompute: Recompute, kind: int) -> More:
        again = ("none", "selective", "user", "full").index(recompute) / 3 if self.stash else 0.0
        return More(1.0 + again, 1.0 - 0.9 * again)

    def keeps_less(self, count: int, recompute: Recompute) -> bool:
        return self.stash > 0.0

    def least_stash(self, count: int, recompute: Recompute) -> list[float]:
        level = ("none", "selective", "user", "full").index(recompute) / 3
        again = level if self.points is KEEPING else float(recompute == "full")
        return [(1.0 - 0.9 * again) * self.stash / count]

    def has(self, count: int) -> bool:
        return count not in self.refused

    def sends(self, count: int) -> Sends:
        sent = Sent(self.send_bytes // count, self.send_bytes // count)
        return Sends((sent,), (sent,))


def cluster(nodes: int, per_node: int) -> Cluster:
    levels = (Level("node", per_node, 1e11, 0.0), Level("network", nodes, 1e9, 0.0))
    return Cluster("test", Device("test", GB, {"default": 1e12}, 1e12), levels)


def search(costs: MadeUp, machine: Cluster, counts: list[int]) -> ShapeSearch:
    views = {size: mesh_views(machine, 0, size) for size in submesh_sizes(machine)}
    made_up: Any = costs
    prices = StagePrices(made_up, Views(views, frozenset(), machine), machine, GB, True)
    nothing: Any = SimpleNamespace()
    return ShapeSearch(
        prices,
        nothing,
        machine,
        PlanOptions(),
        counts,
        [1, *counts],
        ["gpipe", "1f1b"],
        lambda: 0.0,
    )


@pytest.mark.parametrize(
    ("faster", "chosen", "priced"),
    [
        pytest.param(0.996, (8,), {(8,), (2, 4)}, id="prices are not that close"),
        pytest.param(0.99, (2, 4), {(8,), (2, 4), (4, 2)}, id="clearly"),
    ],
)
def test_a_view_in_doubt_must_be_clearly_faster(
    faster: float, chosen: tuple[int, ...], priced: set[tuple[int, ...]]
) -> None:
    """Its axes in another order are priced only if it is."""
    machine = cluster(nodes=1, per_node=8)
    costs: Any = MadeUp(slower_on={(2, 4): faster})
    views = stage_views(machine, PlanOptions())
    assert [view.shape for view in views.first(8)] == [(8,)]
    prices = StagePrices(costs, views, machine, GB, True)
    prices.open_size(8, 4)
    while prices.open_doubtful(8, 4):
        pass
    assert prices.view(8, 4, 1, 0, 3).shape == chosen
    assert {view.shape for view, *_ in costs.asked} == priced


@pytest.mark.parametrize(("faster", "count"), [(0.98, 1), (0.8, 2)])
def test_stages_share_a_view_unless_two_are_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, faster: float, count: int
) -> None:
    """The first stages hold more, and only the second view has room for them."""
    found = search(MadeUp(), cluster(nodes=1, per_node=4), [4])
    small, large = found.prices.views.of(2)[0], Mesh((("x", 1), ("y", 2)), (0, 1))
    found.prices.views._views[2] = [small, large]
    for view in (small, large):
        found.prices.ask(view, 4, 0)
    key = Key(2, 2, 4, "1f1b")

    def table(size: int, microbatches: int, held: int, only: Mesh | None) -> Any:
        shape, own = (4, 4), np.arange(1, 5)[None] - np.arange(4)[:, None]
        on_small = np.where(own > 0, own * faster, np.inf) if held == 1 else np.full(shape, np.inf)
        on_large = np.where(own > 0, 1.0 * own, np.inf)
        if only is not None:
            return (
                (on_small, np.zeros(shape, int))
                if only == small
                else (on_large, np.full(shape, len(POINTS)))
            )
        which = np.where(on_small < on_large, 0, len(POINTS))
        return np.minimum(on_small, on_large), which

    monkeypatch.setattr(found.prices, "_table", table)
    pipeline = found._lines.equal(key)
    assert pipeline is not None
    assert len(set(found._stages(Found(key, pipeline)).views)) == count


def best_of_all(costs: MadeUp, machine: Cluster, counts: list[int]) -> float:
    """Every shape of equal stages, with every point of every layer."""
    whole = search(costs, machine, counts)
    for size, count in itertools.product(whole.prices.sizes, [1, *counts]):
        for view in mesh_views(machine, 0, size):
            for point in range(len(costs.points)):
                whole.prices.ask(view, count, point)
    shapes = [whole._lines.equal(key) for key in whole.all_keys()]
    return min((shape.step_time_s for shape in shapes if shape is not None), default=math.inf)


@pytest.mark.parametrize(
    ("costs", "stages"),
    [
        pytest.param(MadeUp(), 1, id="nothing is sent: one stage has no bubble"),
        pytest.param(MadeUp(talk_s=1.0), 4, id="devices of a stage talk"),
        pytest.param(MadeUp(talk_s=1.0, num_layers=2), 2, id="no more stages than layers"),
        pytest.param(MadeUp(latency_s=9.0), 1, id="each microbatch costs"),
        pytest.param(MadeUp(talk_s=0.02, send_bytes=10**11), 1, id="sending costs more"),
    ],
)
def test_small_problems_get_the_shape_that_is_known_to_be_best(costs: MadeUp, stages: int) -> None:
    found = search(costs, cluster(1, 4), [2, 4, 8]).run()
    assert len(found[0].pipeline.stages) == stages


@pytest.mark.slow
@pytest.mark.parametrize("state", [0.0, 2.5 * GB])
@pytest.mark.parametrize("talk_s", [0.0, 1.0])
@pytest.mark.parametrize("latency_s", [0.01])
@pytest.mark.parametrize("send_bytes", [0, 10**9])
@pytest.mark.parametrize("stash", [0.0, 4.0 * GB])
@pytest.mark.parametrize("points", [POINTS, KEEPING], ids=["no checkpoint", "checkpoint"])
def test_few_prices_find_what_all_of_them_do(
    state: float, talk_s: float, latency_s: float, send_bytes: int, stash: float, points: Points
) -> None:
    machine, counts = cluster(2, 2), [2, 8]

    def costs() -> MadeUp:
        return MadeUp(4, 1.0, talk_s, latency_s, state, send_bytes, stash=stash, points=points)

    few = costs()
    found = search(few, machine, counts).run()
    best_s = best_of_all(costs(), machine, counts)
    if best_s == math.inf:
        assert found == []
    else:
        assert found[0].pipeline.step_time_s <= best_s * (1 + 1e-5)


def test_the_best_pipeline_is_found_where_many_microbatches_leave_devices_without_rows() -> None:
    """With the usual 64 of a batch of 64, a stage of four devices would be far slower."""
    machine, counts = cluster(1, 8), [2, 4, 8, 16, 32, 64]

    def costs() -> MadeUp:
        return MadeUp(2, talk_s=0.05, rows=64, uneven_s=0.5)

    found = search(costs(), machine, counts).run()[0]
    assert (len(found.pipeline.stages), found.key.num_microbatches) == (2, 16)
    best_s = best_of_all(costs(), machine, counts)
    assert found.pipeline.step_time_s <= best_s * (1 + 1e-5)


@pytest.mark.parametrize(("stash", "again"), [(0.2 * GB, False), (0.4 * GB, True)])
def test_values_are_made_again_where_keeping_them_does_not_fit(stash: float, again: bool) -> None:
    """Four layers keep 0.8 or 1.6 GB of 1 GB, or 0.04 each beside the 0.4 GB of one of them."""
    looked = search(MadeUp(stash=stash), cluster(1, 1), [1])
    found = looked.run()[0]
    chosen = looked.prices.recompute(1, 1, 1, *found.pipeline.stages[0][:2])
    assert chosen == ("full" if again else "user")


@pytest.mark.parametrize(
    ("stash", "recompute"),
    [(0.2 * GB, "none"), (0.26 * GB, "selective"), (0.35 * GB, "user"), (0.45 * GB, "full")],
)
def test_the_less_fits_the_more_is_made_again(stash: float, recompute: Recompute) -> None:
    """Four layers keep all of 4 x `stash` of 1 GB, or 0.7, 0.4 or 0.1 of it beside that of one."""
    looked = search(MadeUp(stash=stash, points=KEEPING), cluster(1, 1), [1])
    found = looked.run()[0]
    assert looked.prices.recompute(1, 1, 1, *found.pipeline.stages[0][:2]) == recompute


def test_a_stage_gives_up_time_for_memory_only_as_far_as_it_must() -> None:
    """Four layers hold 1.2 GB of 1 GB, or 0.6 for a tenth more time: a third of them does."""
    looked = search(MadeUp(state=0.3 * GB), cluster(1, 1), [1])
    found = looked.run()[0]
    assert found.pipeline.step_time_s == pytest.approx(4.0 * (1 + 0.1 / 3))


@pytest.mark.parametrize("usages", [(8, 2), (2, 8)])
def test_of_choices_that_take_equally_long_the_smaller_one_is_priced(
    usages: tuple[int, int],
) -> None:
    costs, held = np.array([3.0, 3.0]), np.array(usages)
    problem = Problem([costs], [], [], [held], [(0, 1)], None)
    priced = costs + tie_breaker(problem) * held
    assert int(priced.argmin()) == usages.index(2)
    assert priced.max() <= 1.01 * costs.max()


@pytest.mark.parametrize(
    ("readers", "point"), [((0, 1, 2, 3), 0), ((), 2), ((0, 3), 2), ((0, 1, 3), 1)]
)
def test_what_layers_share_is_held_once(readers: tuple[int, ...], point: int) -> None:
    """Four layers hold 0.7 GB of 1 GB, or 1.4 that must be halved once, or 2.1 or more, twice."""
    costs = MadeUp(state=0.7 * GB, readers=readers)
    search(costs, cluster(1, 1), [1]).run()
    assert max(each[-1] for each in costs.asked) == point


def test_nothing_more_is_priced_for_shapes_that_prices_rule_out() -> None:
    """All layers hold 1.5 times what fits at price 0; large submeshes are slower at any price."""
    costs = MadeUp(8, talk_s=1.0, state=1.5 * GB)
    best = search(costs, cluster(1, 8), [8, 16, 32]).run()[0]
    assert (len(best.pipeline.stages), best.key.schedule) == (8, "1f1b")  # which holds less
    points = {(len(view.device_ids), point) for view, _, point in costs.asked}
    assert points == {(1, 0), (1, 1), (2, 0), (4, 0), (8, 0)}


def test_a_single_stage_that_does_not_fit_after_all_is_planned_in_more_microbatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = search(MadeUp(talk_s=0.01), cluster(1, 4), [2, 4])
    found = looked.run()
    assert found[0].key.num_stages == 1 == found[0].key.num_microbatches
    asked: list[Key] = []

    def plan(proposal: Any, *_: object) -> object:
        asked.append(proposal.shape)
        full = proposal.shape.num_stages == 1 and proposal.shape.num_microbatches < 4
        return LimitError(GB, GB + GB // 2, GB) if full else None

    monkeypatch.setattr(looked, "proposal", lambda each: SimpleNamespace(shape=each.key))
    tried = SimpleNamespace(best=None, best_s=math.inf, num_ops=lambda shape: 1, plan=plan)
    planner: Any = SimpleNamespace(tried=tried, base="1f1b", schedule="1f1b", limit=GB)
    Planner._plan_found(planner, Promising(found, looked), found)
    alone = [key.num_microbatches for key in asked if key.num_stages == 1]
    assert alone == [1, 2, 4]
    assert len(asked) == len(set(asked))


def test_stages_that_do_not_fit_after_all_are_chosen_for_less_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first stage keeps 0.75 GB of 1 GB, which turns out to be twice as much."""
    costs = MadeUp(stash=3.0 * GB, points=KEEPING, talk_s=0.2, latency_s=0.01)
    looked = search(costs, cluster(1, 4), [16])
    found = looked.run()
    first = found[0]
    assert first.key == Key(4, 1, 16, "1f1b")
    held = int(looked._stages(first).estimated_bytes(0))
    less = looked.tighter(first, 0, 2 * held)
    assert less is not None and less.limit_bytes == GB // 2
    for each, kept in ((first, "none"), (less, "user")):
        assert looked._stages(each).prices.recompute(1, 16, 4, 0, 0) == kept
    assert less.pipeline.step_time_s > first.pipeline.step_time_s
    assert looked.tighter(less, 0, 100 * GB) is None
    asked: list[tuple[Key, int | None]] = []

    def plan(proposal: Any, *_: object) -> object:
        asked.append(proposal.shape)
        if proposal.shape != (first.key, None):
            return None
        error = LimitError(GB, 2 * held, GB)
        error.stage = 0
        return error

    monkeypatch.setattr(
        looked, "proposal", lambda each: SimpleNamespace(shape=(each.key, each.limit_bytes))
    )
    tried = SimpleNamespace(best=None, best_s=math.inf, num_ops=lambda shape: 1, plan=plan)
    planner: Any = SimpleNamespace(tried=tried, base="1f1b", schedule="1f1b", limit=GB)
    Planner._plan_found(planner, Promising([first], looked), [first])
    assert asked == [(first.key, None), (first.key, GB // 2)]


def test_no_shape_is_found_where_nothing_fits() -> None:
    assert search(MadeUp(state=100.0 * GB), cluster(1, 4), [2]).run() == []


def test_where_nothing_fits_the_search_ends_with_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    opened = Hopes.open

    def open_one(self: Hopes, *stage: int) -> bool:
        asked.append(1)
        return opened(self, *stage)

    monkeypatch.setattr(Hopes, "open", open_one)
    assert search(MadeUp(state=100.0 * GB), cluster(1, 4), [2]).run() == []
    assert asked
    asked.clear()
    monkeypatch.setattr(shapes, "BUDGET", replace(BUDGET, pricing_work=0))
    assert search(MadeUp(state=100.0 * GB), cluster(1, 4), [2]).run() == []
    assert not asked


def test_one_stage_is_found_whatever_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the fastest here, and the submeshes of a node alone take the whole budget."""
    monkeypatch.setattr(shapes, "BUDGET", replace(BUDGET, pricing_work=0))
    looked = search(MadeUp(latency_s=9.0), cluster(2, 2), [2])
    found = looked.run()
    assert len(found[0].pipeline.stages) == 1
    assert looked.exhausted


def test_microbatches_into_which_the_program_cannot_be_cut_are_left_out() -> None:
    machine, counts = cluster(1, 4), [2, 4, 8, 16, 32]
    free = search(MadeUp(), machine, counts).run()
    best = free[0].key.num_microbatches
    found = search(MadeUp(refused=(best,)), machine, counts).run()
    assert found
    assert best not in {each.key.num_microbatches for each in found}


@pytest.mark.parametrize("state", [0.0, 2.0 * GB], ids=["", "nothing fits at price 0"])
def test_without_a_budget_something_is_found(state: float) -> None:
    spent = search(MadeUp(state=state), cluster(1, 4), [2, 4, 8])
    spent._spent = lambda: 2.0
    assert spent.run()
    assert spent.exhausted or not state  # one stage needs no other price


class Gathering(MadeUp):
    """In one microbatch, a third of the time goes to weights: it would in each of several, too, if
    these did not do without."""

    def cost(self, view: Mesh, count: int, point: int, kind: int) -> LayerCost:
        found = super().cost(view, count, point, kind)
        fixed = found.forward_s / 3, found.backward_s / 3
        return replace(found, least_s=fixed) if count == 1 else found


def test_what_no_split_of_the_stash_can_hold_is_not_priced() -> None:
    """Four layers keep 8.8 GB of a batch; two devices of 1 GB hold an eighth of it, no quarter."""
    costs = MadeUp(stash=2.2 * GB, state=0.1 * GB)
    found = search(costs, cluster(1, 2), [2, 4, 8, 16]).run()
    assert found
    asked = {count for _, count, _ in costs.asked}
    dear = {count for _, count, point in costs.asked if costs.points[point].price > 0.0}
    assert asked == {1, 8}  # a single stage is priced first, whatever it holds
    assert dear <= {8}


def test_prices_in_one_microbatch_do_not_rule_out_several() -> None:
    """A single stage that needs four microbatches, and would wait for nobody."""
    costs = Gathering(stash=1.2 * GB)
    best = search(costs, cluster(1, 2), [2, 4, 8]).run()[0]
    assert best.key.num_stages == 1
    assert best.pipeline.step_time_s == pytest.approx(costs.num_layers * costs.work_s / 2)
