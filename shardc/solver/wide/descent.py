"""Choices and a bound for problems with too many tables to eliminate.

Three phases alternate. *Messages* raise memory prices until their choices almost fit, and prove a
bound. *Oscillation* re-chooses many nodes at once at these prices, which rise where the limit is
exceeded and fall elsewhere, so that choices oscillate around the limit. *Polish* re-chooses a ball
of nodes of the best choice, and keeps changes that cost less and fit.
"""

import math
import random

import numpy as np

from shardc.solver.exact.prices import HIGHEST
from shardc.solver.exact.running_solve import EXACT, Search
from shardc.solver.problem.memory_times import Memory
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints
from shardc.solver.wide.neighbourhood import improve
from shardc.solver.wide.trws import Messages

CELLS_PER_LOOK = 20_000  # work of scoring one choice
UNPRICED_PASSES = 10
BALL_SIZES = (20, 60, 150, 400, 1200)
CELLS_OF_TABLES = (1_000, 5_000, 20_000)
MOST_IDLE = 1_000  # consecutive balls without a gain
MENDING = (4, 10, 30, 100)  # nodes re-chosen around each node of a forbidden pair
MOST_BROKEN = 0.02  # share of all nodes; with more, further passes come first
STEP_BELOW_LIMIT = 5e-4  # per scan of all nodes that finds nothing that fits
MOST_RAISES = 3  # of the prices, to make one ball fit
STALL_PASSES, LEAST_GAIN = 6, 1e-3  # proving passes end after this many with less gain
REPORTS = 20  # of the best choice to the search, per descent


class Descent:
    """The state that the phases share.

    Attributes:
        prices: per byte and kept time; empty if nothing is limited.
        here: the current choice, feasible or not.
        best, best_cost: cheapest feasible choice so far; None, inf before the first.
        bound: proven so far (including the constant).
        scale: magnitude of the costs, for initial prices: that of the cheapest choice so far.
        target: bytes that the prices aim at: the limit, or less while no choice meets it.
    """

    def __init__(self, network: Network, search: Search, prices: Floats, rng: random.Random):
        self.network, self.search, self.rng = network, search, rng
        self.memory: Memory | None = network.reduced.memory
        self.messages = Messages(network)
        self.prices = prices.copy()
        self.here: Ints = np.zeros(len(network.sizes), np.int64)
        self.best: Ints | None = search.here
        self.best_cost = search.here_cost
        self.reported = search.here_cost
        self.bound = -math.inf
        self.least_scale = max(float(np.abs(network.flat).max(initial=0.0)), 1e-300)
        self.scale = math.inf
        self.target = math.inf if self.memory is None else float(self.memory.limit)
        self.spare: Floats = np.zeros(0)
        if self.memory is not None:
            self.spare = (self.memory.base - self.memory.limit).astype(np.float64)
        self.gains: dict[tuple[str, int], float] = {}

    def look(self, choice: Ints) -> tuple[float, Ints | None]:
        """Cost and memory profile of a choice; records it if it is the best."""
        self.search.work_left -= CELLS_PER_LOOK
        self.search.check_time()
        cost = self.network.cost(choice)
        self.scale = min(self.scale, max(abs(cost), self.least_scale))
        profile = None
        if self.memory is not None:
            profile = self.memory.profile(choice)
            peak = int(profile.max(initial=0))
            if peak > self.memory.limit:
                self.search.least_peak = min(peak, self.search.least_peak or peak)
                return cost, profile
        if cost < self.best_cost:
            self.best, self.best_cost = choice.copy(), cost
            if self.search.best is None:
                self.report()
        return cost, profile

    def report(self) -> None:
        """Offers the best choice to the search."""
        if self.best is not None and self.best_cost < self.reported:
            self.reported = self.best_cost
            self.search.offer(self.best)

    def unit(self) -> float:
        """The price at which memory up to the limit costs as much as a cheap choice."""
        scale = self.scale if self.scale < math.inf else self.least_scale
        return scale / max(self.target, 1.0)

    def closed(self) -> bool:
        """Whether the best choice is proven to meet the gap."""
        self.search.raise_bound(self.bound)
        if self.best_cost < self.reported and self.best_cost - self.search.lower_bound <= (
            self.search.open_gap() * abs(self.best_cost)
        ):
            self.report()
        return self.search.closed()

    def adjust(self, profile: Ints | None, rate: float) -> None:
        """Prices rise by up to exp(rate) where the profile exceeds the limit, fall where it is
        below, and start at unpriced peaks above it."""
        memory = self.memory
        if memory is None or profile is None:
            return
        priced = self.prices > 0
        over = (profile[priced] - self.target) / max(self.target, 1.0)
        self.prices[priced] *= np.exp(rate * np.clip(20.0 * over, -1.0, 1.0))
        np.minimum(self.prices, HIGHEST * self.unit(), out=self.prices)
        peaks = memory.peaks(profile, len(profile))
        peaks = peaks[self.prices[peaks] == 0.0]
        if len(peaks):
            least = 0.003 * self.unit()
            self.prices[peaks] = max(0.01 * float(self.prices.sum()), least)
        self.prices[self.prices < 1e-6 * self.prices.max(initial=0.0)] = 0.0

    def pass_messages(self, work: float, rates: tuple[float, float]) -> None:
        """The first phase; leaves its last choice in `here`.

        Args:
            rates: of price changes, from and to; they stay at the first until something fits.
        """
        search = self.search
        end = search.work_left - work
        unpriced = 0 if self.prices.any() else UNPRICED_PASSES
        count = 0
        while search.work_left > end and not self.closed():
            bound, choice = self.one_pass(forward=count % 2 == 0)
            if bound > self.bound:
                self.bound = bound
                search.proving = np.zeros(len(search.live.times))
                search.proving[self.network.reduced.times] = self.prices
            cost, profile = self.look(choice)
            if cost == math.inf:
                choice = self.mend(choice)
                _, profile = self.look(choice)
            self.here = choice
            count += 1
            if count <= unpriced:
                continue
            share = 1.0 - (search.work_left - end) / max(work, 1.0)
            rate = rates[0] * (rates[1] / rates[0]) ** min(share, 1.0)
            self.adjust(profile, rates[0] if self.best is None else rate)
        search.raise_bound(self.bound)

    def mend(self, choice: Ints) -> Ints:
        """Re-chooses nodes around the forbidden pairs that messages sometimes leave, in ever
        larger balls, until there are none."""
        costs = self.network.priced(self.prices)
        broken = self.network.forbidden(choice)
        for factor in MENDING:
            if not 0 < len(broken) <= MOST_BROKEN * len(choice):
                break
            free = self._grow(broken, factor * len(broken))
            again = self.choose_again(choice, costs, free)
            left = self.network.forbidden(again)
            if len(left) < len(broken):
                choice, broken = again, left
        return choice

    def prove(self, most_passes: int, *, look: bool) -> None:
        """Passes of messages at fixed prices, for a bound, until it is close or hardly moves.

        Args:
            look: whether to score their choices.
        """
        before = -math.inf
        for count in range(most_passes):
            if self.closed():
                break
            self.search.check_time()
            bound, choice = self.one_pass(forward=count % 2 == 0)
            self.bound = max(self.bound, bound)
            if look:
                self.look(choice)
            if count % STALL_PASSES == STALL_PASSES - 1:
                if self.bound - before < LEAST_GAIN * abs(self.bound):
                    break
                before = self.bound
        self.search.raise_bound(self.bound)

    def one_pass(self, *, forward: bool, slacks: Floats | None = None) -> tuple[float, Ints]:
        """A pass at the prices: a bound on every choice that fits, and a choice."""
        network = self.network
        costs = network.priced(self.prices)
        bound, choice = self.messages.run(costs, forward=forward, slacks=slacks)
        self.search.work_left -= self.messages.work
        bound += network.reduced.constant
        if len(self.spare):
            bound += float(self.prices @ self.spare)
        return bound, choice

    def least_costs(self) -> Floats:
        """Per strategy, a lower bound on the cost of every choice with it that fits."""
        least = np.full(len(self.network.flat), -math.inf)
        for forward in (True, False):
            slacks = np.zeros(len(least))
            bound, _ = self.one_pass(forward=forward, slacks=slacks)
            self.bound = max(self.bound, bound)
            least = np.maximum(least, slacks + bound)
        return least

    def oscillate(self, work: float, rates: tuple[float, float]) -> None:
        """The second phase, from `here`. While nothing fits, it aims lower and lower."""
        search, rng = self.search, self.rng
        num_nodes = len(self.network.sizes)
        end = search.work_left - work
        while search.work_left > end and not self.closed():
            share = 1.0 - (search.work_left - end) / max(work, 1.0)
            size = max(1, int(num_nodes * rng.choice((0.1, 0.3, 1.0))))
            free = self.ball(size) if size < num_nodes else list(range(num_nodes))
            costs = self.network.priced(self.prices)
            self.here = self.choose_again(self.here, costs, free)
            _, profile = self.look(self.here)
            rate = rates[0] * (rates[1] / rates[0]) ** min(share, 1.0)
            if self.best is None:
                rate = rates[0]
                self.target *= 1.0 - STEP_BELOW_LIMIT * len(free) / num_nodes
            self.adjust(profile, rate * len(free) / num_nodes)

    def polish(self, work: float) -> None:
        """The third phase, from the best choice. Ends early after many balls without a gain."""
        search, rng, memory = self.search, self.rng, self.memory
        end = search.work_left - work
        kinds = [("near", size) for size in BALL_SIZES]
        if memory is not None:
            kinds += [("peak", size) for size in BALL_SIZES]
        for kind in kinds:
            self.gains.setdefault(kind, 1.0)
        charges = self.network.priced(self.prices) - self.network.flat
        unreported = work / REPORTS
        idle = 0
        while self.best is not None and search.work_left > end and idle < MOST_IDLE:
            if self.closed():
                break
            before, before_work = self.best_cost, search.work_left
            kind = rng.choices(kinds, [self.gains[k] for k in kinds])[0]
            free = self.ball(kind[1]) if kind[0] == "near" else self.live_at_a_peak(kind[1])
            self.refine(free, charges)
            spent = before_work - search.work_left
            idle = 0 if self.best_cost < before - EXACT * abs(before) else idle + 1
            gain = (before - self.best_cost) / max(abs(before), 1e-300) / spent
            unit = 1e-6 / (0.01 * work)
            self.gains[kind] = max(0.9 * self.gains[kind], 0.1, min(gain / unit, 5.0))
            unreported -= spent
            if unreported < 0:
                self.report()
                unreported = work / REPORTS

    def refine(self, free: list[int], charges: Floats) -> None:
        """Tries to re-choose the nodes `free` of the best choice.

        Args:
            charges: of all strategies, the cost of their memory at the prices.
        """
        assert self.best is not None
        memory, best, best_cost = self.memory, self.best, self.best_cost
        factor = self.rng.lognormvariate(0.0, 0.7) if self.rng.random() > 0.2 else 0.0
        prices, costs = factor * self.prices, self.network.flat + factor * charges
        for _ in range(MOST_RAISES + 1):
            choice = self.choose_again(best, costs, free)
            _, profile = self.look(choice)
            if memory is None or profile is None or self.best_cost < best_cost:
                return
            peaks = memory.peaks(profile, len(profile))
            if len(peaks) == 0:
                return
            least = max(float(self.prices.max(initial=0.0)), 1e-3 * self.unit())
            prices[peaks] = np.maximum(prices[peaks] * 2.0, least * 0.3)
            costs = self.network.priced(prices)

    def choose_again(self, choice: Ints, costs: Floats, free: list[int]) -> Ints:
        """The best choice for the nodes `free` at priced costs, or a good one."""
        cells = self.rng.choice(CELLS_OF_TABLES)
        found, work = improve(
            self.network, costs, choice, free, cells, self.rng, self.search.check_time
        )
        self.search.work_left -= work
        return found

    def ball(self, size: int) -> list[int]:
        """About `size` nodes around a random one, breadth first."""
        start = self.rng.randrange(len(self.network.sizes))
        return self._grow([start], size)

    def live_at_a_peak(self, size: int) -> list[int]:
        """About `size` nodes: half of them hold memory at one time that is nearly full."""
        assert self.memory is not None and self.best is not None
        memory = self.memory
        profile = memory.profile(self.best)
        full = np.flatnonzero((self.prices > 0) | (profile > 0.98 * memory.limit))
        if len(full) == 0:
            return self.ball(size)
        time = int(full[self.rng.randrange(len(full))])
        live = memory.term_node[(memory.lo <= time) & (time < memory.hi)]
        nodes = np.unique(live).tolist()
        if not nodes:
            return self.ball(size)
        start = self.rng.sample(nodes, min(len(nodes), max(1, size // 2)))
        return self._grow(start, size)

    def _grow(self, start: list[int], size: int) -> list[int]:
        seen = dict.fromkeys(start)
        order = list(start)
        for v in order:
            if len(order) >= size:
                break
            near = [w for w in self.network.near[v].tolist() if w not in seen]
            for w in self.rng.sample(near, min(len(near), 16)):
                seen[w] = None
                order.append(w)
        return sorted(order[:size])
