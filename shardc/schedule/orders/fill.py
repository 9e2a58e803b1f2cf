"""Puts weight gradients where a pipeline would idle.

A W may run any time after its B. So schedules with split backwards order F and B, and W goes where
the inputs of the next task are not ready yet, or where memory must be freed first.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from shardc.schedule.family import Costs, Lanes
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    UPDATE,
    WEIGHT,
    Amount,
    Task,
    all_scaled,
    common_scale,
    scaled,
)
from shardc.schedule.work import Placement, Work


@dataclass(frozen=True)
class Filling:
    """How groups use the time until the inputs of their lane's next task are ready.

    Attributes:
        patience: a W runs in a gap that is known to be at least 1 - patience of its time; 0: only
            in gaps that it fits into, 1: in every gap.
        level: a W also runs if its group would otherwise have idled longer, in total, than any
            other group: the delay then hits a group that has slack.
        loose: keep only the order of the tasks of each kind and stage, and run whatever is ready.
        reserve: chunks of room that an F which overtakes another F must leave.
        by_kind: keep the order of all F and that of all B, and let a B overtake an F for which
            there is no room, or vice versa.
    """

    patience: Amount = 0
    level: bool = False
    loose: bool = False
    reserve: int = 0
    by_kind: bool = False


def fill_weights(
    work: Work,
    placement: Placement,
    lanes: Lanes,
    costs: Costs,
    limit: Amount | None = None,
    filling: Filling | None = None,
) -> list[list[Task]] | None:
    """`Filler.fill` of a single order."""
    return Filler(work, placement, costs, limit).fill(lanes, filling or Filling())


class Filler:
    """Inserts weight gradients into orders of one work; what all orders share is computed once.

    Tasks are numbered, and lists have an entry per task: whole lanes of tasks are hashed once.

    Args:
        limit: the most a group may hold, in microbatches of its full share; weights run before an
            F that would exceed it. None: no limit.

    Attributes:
        takes: the time of a task, an integer if times are exact.
        needs: the number of tasks that it waits for.
        readers: the tasks that wait for it, and for how long its result is on the way.
        targets: the other groups that they are on.
        holds: the change of what its group holds, in parts of which an F has `whole`.
        weight: the W of a B, if the backward is split.
        room: the most that a group may hold.
    """

    def __init__(
        self, work: Work, placement: Placement, costs: Costs, limit: Amount | None = None
    ) -> None:
        self.whole = common_scale([work.weight_share])
        late = int(scaled(work.weight_share, self.whole)) if work.split_backward else self.whole
        self.room = None if limit is None else limit * self.whole // work.share
        graph, duration = work.graph(placement), costs.durations(work)
        self.tasks = list(graph.tasks)
        self.number = {task: i for i, task in enumerate(self.tasks)}
        waits = [(i, need) for i, own in enumerate(graph.needs.values()) for need in own]
        sends = [costs.send_s(need) for _, need in waits]
        times, _ = all_scaled([*map(duration, self.tasks), *sends])
        self.takes, sends = times[: len(self.tasks)], times[len(self.tasks) :]
        self.needs = [len(own) for own in graph.needs.values()]
        self.readers: list[list[tuple[int, Amount]]] = [[] for _ in self.tasks]
        self.targets: list[set[int]] = [set() for _ in self.tasks]
        for (i, need), send_s in zip(waits, sends, strict=True):
            needed = self.number[need.task]
            self.readers[needed].append((i, send_s))
            if need.source != need.target and self.tasks[i].kind != UPDATE:
                self.targets[needed].add(need.target)
        changes = {FORWARD: self.whole, BACKWARD: late - self.whole, WEIGHT: -late}
        if not work.split_backward:
            changes[BACKWARD] = -late
        self.holds = [changes.get(task.kind, 0) for task in self.tasks]
        self.weight: list[int | None] = [None] * len(self.tasks)
        for i, task in enumerate(self.tasks):
            if task.kind == WEIGHT:
                self.weight[self.number[task._replace(kind=BACKWARD)]] = i

    def fill(self, lanes: Lanes, filling: Filling) -> list[list[Task]] | None:
        """`lanes` of F and B, with each W inserted where its group would idle.

        Returns:
            None if tasks that ran early took the room that others needed.
        """
        return _Run(self, lanes, filling).run()


class _Run:
    """A simulation in which idle groups run their oldest weight gradient."""

    def __init__(self, of: Filler, lanes: Lanes, filling: Filling) -> None:
        self.of, self.filling = of, filling
        self.rank = [0] * len(of.tasks)  # in their lanes
        self.queues: list[list[deque[int]]] = []
        for lane in lanes:
            queues: dict[object, deque[int]] = {}
            for rank, task in enumerate(lane):
                key: object = filling.by_kind and task.kind
                if filling.loose:
                    key = task.kind, task.stage, task.replica
                number = of.number[task]
                self.rank[number] = rank
                queues.setdefault(key, deque()).append(number)
            self.queues.append(list(queues.values()))
        self.missing = list(of.needs)
        self.ready: list[Amount] = [0] * len(of.tasks)  # when the inputs have arrived that started
        self.done: list[list[Task]] = [[] for _ in lanes]
        self.waiting: list[deque[int]] = [deque() for _ in lanes]
        self.held = [0] * len(lanes)
        self.free_at: list[Amount] = [0] * len(lanes)
        self.idle: list[Amount] = [0] * len(lanes)  # time between tasks, so far
        self.events: list[tuple[Amount, int]] = [(0, row) for row in range(len(lanes))]

    def run(self) -> list[list[Task]] | None:
        events = self.events
        while events:
            event = heappop(events)
            while events and events[0] == event:  # nothing has changed since the first
                heappop(events)
            now, row = event
            if now >= self.free_at[row]:
                self._wake(row, now)
        return None if any(queue for queues in self.queues for queue in queues) else self.done

    def _wake(self, row: int, now: Amount) -> None:
        heads = [queue for queue in self.queues[row] if queue]
        if len(heads) > 1:
            heads.sort(key=lambda queue: self.rank[queue[0]])
        soonest: Amount | None = None
        blocked = overtakes = False
        for queue in heads:
            number = queue[0]
            full = False
            if self.of.holds[number] > 0:  # an F
                full = self._is_full(row, overtakes)
                overtakes = True
            if self.missing[number]:
                continue
            ready = self.ready[number]
            if ready <= now:
                if not full:
                    self._start(row, queue.popleft(), now)
                    return
                blocked = True
            elif not full and (soonest is None or ready < soonest):
                soonest = ready
        if self.waiting[row] and (blocked or soonest is None or self._fits(row, soonest - now)):
            self._start(row, self.waiting[row].popleft(), now)
        elif soonest is not None:
            heappush(self.events, (soonest, row))

    def _is_full(self, row: int, overtakes: bool) -> bool:
        if self.of.room is None:
            return False
        taken = 1 + overtakes * self.filling.reserve
        return self.held[row] + taken * self.of.whole > self.of.room

    def _fits(self, row: int, gap: Amount) -> bool:
        """Whether the next W runs in a gap."""
        if self.filling.level and gap > max(self.idle) - self.idle[row]:
            return True
        return gap >= self.of.takes[self.waiting[row][0]] * (1 - self.filling.patience)

    def _start(self, row: int, number: int, now: Amount) -> None:
        of = self.of
        end = now + of.takes[number]
        if self.done[row]:
            self.idle[row] += now - self.free_at[row]
        self.done[row].append(of.tasks[number])
        self.free_at[row] = end
        self.held[row] += of.holds[number]
        weight = of.weight[number]
        if weight is not None:
            self.waiting[row].append(weight)
        heappush(self.events, (end, row))
        for reader, send_s in of.readers[number]:
            self.missing[reader] -= 1
            arrival = end + send_s
            if arrival > self.ready[reader]:
                self.ready[reader] = arrival
        for target in of.targets[number]:
            heappush(self.events, (max(now, self.free_at[target]), target))
