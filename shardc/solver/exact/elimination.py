"""Variable elimination: exact while tables stay small, else a bound and a good choice.

Bucket elimination and mini-buckets: Dechter, Artificial Intelligence 113, 1999; Dechter and Rish,
J. ACM 50(2), 2003. Moment matching: Ihler, Flerova, Dechter, Otten, UAI 2012.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.solver.problem.problem import Floats, Ints

MOST_NEIGHBOURS_TO_PAIR = 40  # counting missing pairs is slow for more: such nodes are postponed


@dataclass(frozen=True)
class Input:
    """A factor of a bucket: its number, its other variables, and its shape inside the bucket's
    table (1 for variables it does not depend on)."""

    factor: int
    others: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Factors that are added into one table before the variable is minimised away.

    Attributes:
        inputs: factors of the table; axis 0 of each is the variable.
        output: number of the remaining factor, over the table's other variables.
    """

    inputs: tuple[Input, ...]
    output: int


@dataclass(frozen=True)
class Order:
    """The order of elimination and its tables; depends only on sizes, so it is reused.

    Attributes:
        buckets: (variable, groups) in the order of elimination.
        first_later: per edge, whether its second node is eliminated before its first one.
        exact: no bucket was split, so the result is the optimum.
        num_cells: total cells of all tables: the work of one pass.
    """

    buckets: tuple[tuple[int, tuple[Group, ...]], ...]
    first_later: tuple[bool, ...]
    exact: bool
    num_cells: int


def plan_order(
    sizes: Sequence[int],
    edges: Sequence[tuple[int, int]],
    most_cells: int,
    noise: Callable[[], float] = lambda: 0.0,
) -> Order:
    """Greedy min-fill order: the next variable is the one whose neighbours miss the fewest
    connections; ties go to the one that leaves the smallest table.

    Args:
        sizes: strategies per node.
        edges: pairs of nodes, at most one per pair.
        most_cells: a bucket with a larger table is split into mini-buckets.
        noise: added to the number of missing connections, to sample other orders.
    """
    log_size = [math.log2(size) for size in sizes]
    most_log = math.log2(most_cells)
    scopes: dict[int, frozenset[int]] = {i: frozenset(e) for i, e in enumerate(edges)}
    factors: list[set[int]] = [set() for _ in sizes]
    for i, (u, v) in enumerate(edges):
        factors[u].add(i)
        factors[v].add(i)
    jitter = [noise() for _ in sizes]

    near: list[set[int]] = [set() for _ in sizes]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)

    def key(v: int) -> tuple[float, float]:
        size = math.fsum(log_size[u] for u in near[v])
        if len(near[v]) > MOST_NEIGHBOURS_TO_PAIR:
            return (float(len(near[v]) ** 2), size)
        missing = sum(len(near[v] - near[u]) - 1 for u in near[v]) / 2
        return (missing + jitter[v], size)

    keys = [key(v) for v in range(len(sizes))]
    heap = [(k, v) for v, k in enumerate(keys)]
    heapq.heapify(heap)
    done = [False] * len(sizes)
    place: dict[int, int] = {}
    raw: list[tuple[int, list[tuple[list[int], int]]]] = []
    next_factor = len(edges)
    while heap:
        k, v = heapq.heappop(heap)
        if done[v] or k != keys[v]:
            continue
        done[v] = True
        place[v] = len(raw)
        groups = _group(v, sorted(factors[v]), scopes, log_size, most_log)
        stale: set[int] = set()  # nodes whose keys change: neighbours of v and of pairs it joins
        outputs: list[tuple[list[int], int]] = []
        for members, union in groups:
            rest = union - {v}
            for f in members:
                for u in scopes[f] - {v}:
                    factors[u].discard(f)
            scopes[next_factor] = rest
            for u in rest:
                factors[u].add(next_factor)
                near[u].discard(v)
                for w in rest - near[u] - {u}:
                    near[u].add(w)
                    near[w].add(u)
                    stale |= near[u] & near[w]
            stale |= rest
            outputs.append((members, next_factor))
            next_factor += 1
        raw.append((v, outputs))
        for u in stale:
            new = key(u)
            if new != keys[u]:
                keys[u] = new
                heapq.heappush(heap, (new, u))
    return _finish(raw, place, scopes, sizes, edges)


def _group(
    v: int,
    members: list[int],
    scopes: dict[int, frozenset[int]],
    log_size: list[float],
    most_log: float,
) -> list[tuple[list[int], frozenset[int]]]:
    """Splits the factors of a bucket first-fit, so that each group's table stays within bounds."""
    groups: list[tuple[list[int], frozenset[int]]] = []
    if not members:
        return groups
    whole = frozenset({v}).union(*(scopes[f] for f in members))
    if math.fsum(log_size[u] for u in whole) <= most_log + 1e-9:
        return [(members, whole)]
    by_size = sorted(members, key=lambda f: -math.fsum(log_size[u] for u in scopes[f]))
    for f in by_size:
        for i, (group, union) in enumerate(groups):
            joint = union | scopes[f]
            if math.fsum(log_size[u] for u in joint) <= most_log + 1e-9:
                groups[i] = ([*group, f], joint)
                break
        else:
            groups.append(([f], scopes[f]))
    return groups


def _finish(
    raw: list[tuple[int, list[tuple[list[int], int]]]],
    place: dict[int, int],
    scopes: dict[int, frozenset[int]],
    sizes: Sequence[int],
    edges: Sequence[tuple[int, int]],
) -> Order:
    """Fixes axes: tables are ordered by time of elimination, so none is ever transposed."""
    buckets = []
    num_cells = 0
    exact = True
    for v, outputs in raw:
        groups = []
        exact &= len(outputs) <= 1
        for members, output in outputs:
            axes = [v, *sorted(scopes[output], key=place.__getitem__)]
            num_cells += math.prod(sizes[u] for u in axes)
            inputs = tuple(
                Input(
                    f,
                    tuple(u for u in axes[1:] if u in scopes[f]),
                    tuple(sizes[u] if u in scopes[f] else 1 for u in axes),
                )
                for f in members
            )
            groups.append(Group(inputs, output))
        buckets.append((v, tuple(groups)))
    first_later = tuple(place[u] > place[v] for u, v in edges)
    return Order(tuple(buckets), first_later, exact, num_cells)


@dataclass(frozen=True)
class _Forth:
    """The result of the forward pass: all factors, the shifts of split buckets, and the bound."""

    factors: dict[int, Floats]
    shifts: dict[int, list[Floats]]
    bound: float


def eliminate(
    order: Order,
    costs: Sequence[Floats],
    tables: Sequence[Floats],
    check_time: Callable[[], None] = lambda: None,
) -> tuple[float, Ints]:
    """A forward pass (minimises variables away) and a backward pass (reads off the choice).

    Returns:
        A lower bound on the cost, and a choice; if `order.exact`, the choice attains the bound.
    """
    forth = _forth(order, costs, tables, check_time)
    return forth.bound, _decode(order, costs, forth.factors)


def eliminate_both_ways(
    order: Order,
    costs: Sequence[Floats],
    tables: Sequence[Floats],
    check_time: Callable[[], None] = lambda: None,
) -> tuple[float, Ints, list[Floats]]:
    """Like `eliminate`; also returns, per node and strategy, how far above the bound every choice
    with this strategy is. Three to four times the work."""
    forth = _forth(order, costs, tables, check_time)
    choice = _decode(order, costs, forth.factors)
    return forth.bound, choice, _slacks(order, costs, forth, check_time)


def _forth(
    order: Order,
    costs: Sequence[Floats],
    tables: Sequence[Floats],
    check_time: Callable[[], None],
) -> _Forth:
    factors: dict[int, Floats] = {
        i: np.ascontiguousarray(table.T if later else table)
        for i, (table, later) in enumerate(zip(tables, order.first_later, strict=True))
    }
    shifts: dict[int, list[Floats]] = {}
    bound = 0.0
    for step, (v, groups) in enumerate(order.buckets):
        if step % 64 == 0:
            check_time()
        if not groups:
            bound += float(costs[v].min())
            continue
        sums = [_sum_of(group, factors) for group in groups]
        sums[0] = sums[0] + _column(costs[v], sums[0])
        if len(sums) > 1:
            shifts[v] = _match_moments(sums)
        for group, total in zip(groups, sums, strict=True):
            least = total.min(axis=0)
            if least.ndim == 0:
                bound += float(least)
            else:
                factors[group.output] = least
    return _Forth(factors, shifts, bound)


def _slacks(
    order: Order, costs: Sequence[Floats], forth: _Forth, check_time: Callable[[], None]
) -> list[Floats]:
    """Sends the sum outside each group back down the tree of groups, and adds it there."""
    outside: dict[int, Floats] = {}
    slacks = [cost - cost.min() for cost in costs]
    num_edges = len(order.first_later)
    for step, (v, groups) in enumerate(reversed(order.buckets)):
        if step % 64 == 0:
            check_time()
        slack: Floats | None = None
        for g, group in enumerate(groups):
            total = _sum_of(group, forth.factors)
            node = costs[v] if g == 0 else np.zeros(len(costs[v]))
            if v in forth.shifts:
                node = node + forth.shifts[v][g]
            total = total + _column(node, total)
            if group.output in outside:
                total = total + outside.pop(group.output)[None]
            for i in group.inputs:
                if i.factor >= num_edges:
                    known = forth.factors[i.factor]
                    axes = tuple(a for a, size in enumerate(i.shape) if size == 1)
                    with np.errstate(invalid="ignore"):
                        rest = total.min(axis=axes).reshape(known.shape) - known
                    outside[i.factor] = np.where(np.isfinite(known), rest, np.inf)
            least = total.reshape(len(total), -1).min(axis=1)
            here = least - least.min()
            slack = here if slack is None else np.maximum(slack, here)
        if slack is not None:
            slacks[v] = slack
    return slacks


def _column(vector: Floats, table: Floats) -> Floats:
    return vector.reshape((len(vector),) + (1,) * (table.ndim - 1))


def _sum_of(group: Group, factors: dict[int, Floats]) -> Floats:
    """Adds the factors of a group; small ones first, so the large table is touched rarely."""
    inputs = sorted(group.inputs, key=lambda i: math.prod(i.shape))
    total = factors[inputs[0].factor].reshape(inputs[0].shape)
    for i in inputs[1:]:
        total = total + factors[i.factor].reshape(i.shape)
    return total


def _match_moments(sums: list[Floats]) -> list[Floats]:
    """Shifts node costs between the groups of a split bucket so that their minima agree."""
    least = [total.reshape(len(total), -1).min(axis=1) for total in sums]
    mean = sum(least) / len(sums)
    shifts = [
        np.where(np.isfinite(one) & np.isfinite(mean), mean - np.where(np.isfinite(one), one, 0), 0)
        for one in least
    ]
    for i, shift in enumerate(shifts):
        sums[i] = sums[i] + _column(shift, sums[i])
    return shifts


def _decode(order: Order, costs: Sequence[Floats], factors: dict[int, Floats]) -> Ints:
    """Chooses in reverse order, each variable by the exact factors of its bucket."""
    choice = np.zeros(len(costs), np.int64)
    picks: list[int] = [0] * len(costs)
    for v, groups in reversed(order.buckets):
        score = costs[v]
        for group in groups:
            for i in group.inputs:
                at: tuple[slice | int, ...] = (slice(None), *(picks[u] for u in i.others))
                score = score + factors[i.factor][at]
        picks[v] = int(np.argmin(score))
        choice[v] = picks[v]
    return choice
