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
    WEIGHT,
    Amount,
    Task,
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
    """`lanes` of F and B, with each W inserted where its group would idle.

    Args:
        limit: the most a group may hold, in microbatches of its full share; weights run before an
            F that would exceed it. None: no limit.
    Returns:
        None if tasks that ran early took the room that others needed.
    """
    return _Filler(work, placement, lanes, costs, limit, filling or Filling()).run()


class _Filler:
    """A simulation in which idle groups run their oldest weight gradient."""

    def __init__(
        self,
        work: Work,
        placement: Placement,
        lanes: Lanes,
        costs: Costs,
        limit: Amount | None,
        filling: Filling,
    ) -> None:
        self.filling = filling
        self.splits = work.split_backward
        self.whole = common_scale([work.weight_share])  # size of one F
        self.late = int(scaled(work.weight_share, self.whole)) if self.splits else self.whole
        self.room = None if limit is None else limit * self.whole // work.share
        self.graph = work.graph(placement)
        duration = costs.durations(work)
        kinds = {(t.kind, t.stage, t.slice, t.replica): duration(t) for t in self.graph.tasks}
        needs = {
            task: [(need.task, costs.send_s(need)) for need in needs]
            for task, needs in self.graph.needs.items()
        }
        sends = {send_s for each in needs.values() for _, send_s in each}
        scale = common_scale([*kinds.values(), *sends])
        self.takes = {kind: scaled(time, scale) for kind, time in kinds.items()}
        late = {send_s: scaled(send_s, scale) for send_s in sends}
        self.needs = {
            task: [(needed, late[send_s]) for needed, send_s in each]
            for task, each in needs.items()
        }
        self.lane_of = {task: row for row, lane in enumerate(lanes) for task in lane}
        self.rank = {task: i for lane in lanes for i, task in enumerate(lane)}
        self.queues: list[list[deque[Task]]] = []
        for lane in lanes:
            queues: dict[object, deque[Task]] = {}
            for task in lane:
                key: object = filling.by_kind and task.kind
                if filling.loose:
                    key = task.kind, task.stage, task.replica
                queues.setdefault(key, deque()).append(task)
            self.queues.append(list(queues.values()))
        self.ends: dict[Task, Amount] = {}
        self.done: list[list[Task]] = [[] for _ in lanes]
        self.waiting: list[deque[Task]] = [deque() for _ in lanes]
        self.held = [0] * len(lanes)
        self.free_at: list[Amount] = [0] * len(lanes)
        self.idle: list[Amount] = [0] * len(lanes)  # time between tasks, so far
        self.events: list[tuple[Amount, int]] = [(0, row) for row in range(len(lanes))]
        self.readers: dict[Task, set[int]] = {}
        for task, row in self.lane_of.items():
            for need in self.graph.needs[task]:
                if self.lane_of[need.task] != row:
                    self.readers.setdefault(need.task, set()).add(row)

    def run(self) -> list[list[Task]] | None:
        while self.events:
            now, row = heappop(self.events)
            if now >= self.free_at[row]:
                self._wake(row, now)
        return None if any(queue for queues in self.queues for queue in queues) else self.done

    def _wake(self, row: int, now: Amount) -> None:
        heads = sorted((q for q in self.queues[row] if q), key=lambda q: self.rank[q[0]])
        soonest: Amount | None = None
        blocked = overtakes = False
        for queue in heads:
            ready = self._ready(queue[0], row)
            full = self._is_full(queue[0], row, overtakes)
            overtakes = overtakes or queue[0].kind == FORWARD
            if ready is not None and ready <= now:
                if not full:
                    self._start(row, queue.popleft(), now)
                    return
                blocked = True
            elif ready is not None and not full:
                soonest = ready if soonest is None else min(soonest, ready)
        if self.waiting[row]:
            needed = self._takes(self.waiting[row][0]) * (1 - self.filling.patience)
            spare = max(self.idle) - self.idle[row]
            level = self.filling.level and soonest is not None and soonest - now > spare
            if blocked or level or soonest is None or soonest - now >= needed:
                self._start(row, self.waiting[row].popleft(), now)
                return
        if soonest is not None:
            heappush(self.events, (soonest, row))

    def _is_full(self, task: Task, row: int, overtakes: bool) -> bool:
        if task.kind != FORWARD or self.room is None:
            return False
        taken = 1 + overtakes * self.filling.reserve
        return self.held[row] + taken * self.whole > self.room

    def _takes(self, task: Task) -> Amount:
        return self.takes[task.kind, task.stage, task.slice, task.replica]

    def _ready(self, task: Task, row: int) -> Amount | None:
        """When the inputs of a task are ready; None while one of them has not started."""
        ready: Amount = 0
        for needed, send_s in self.needs[task]:
            end = self.ends.get(needed)
            if end is None:
                return None
            ready = max(ready, end + send_s)
        return ready

    def _start(self, row: int, task: Task, now: Amount) -> None:
        end = now + self._takes(task)
        if self.done[row]:
            self.idle[row] += now - self.free_at[row]
        self.done[row].append(task)
        self.ends[task] = self.free_at[row] = end
        if task.kind == FORWARD:
            self.held[row] += self.whole
        elif task.kind == BACKWARD and self.splits:
            self.waiting[row].append(task._replace(kind=WEIGHT))
            self.held[row] -= self.whole - self.late
        else:
            self.held[row] -= self.late
        heappush(self.events, (end, row))
        for reader in self.readers.get(task, ()):
            heappush(self.events, (max(now, self.free_at[reader]), reader))
