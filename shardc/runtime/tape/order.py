"""The single order in which the actions of all lanes are dispatched."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from shardc.errors import ShardcError
from shardc.plan.executable import Executable, ValueSpec, moved_values
from shardc.plan.function_kind import FunctionKind
from shardc.plan.program_graph import KINDS_OF_ACTION
from shardc.plan.value_id import INDEX, is_accumulator, is_computed
from shardc.runtime.compiled_program import Program
from shardc.schedule.moves import START, Moments, moments
from shardc.schedule.tasks import LINKS, ONCE_PER_STEP, UPDATE, Task, parse_lanes

Key = tuple[str, int | None]


class Dispatch(NamedTuple):
    """One program, run once: `action` as it prints, the program's position, the microbatch.

    Attributes:
        stands: where the action stands among the moves of its stage.
    """

    action: str
    program: int
    microbatch: int | None
    stands: Moments = START


class Keys:
    """Tells apart the values of a step that a program takes and makes.

    Attributes:
        moved: as `moved_values` gives it.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self.moved = moved_values(each.program for each in programs)

    def of(self, spec: ValueSpec, entry: Dispatch) -> Key:
        """The value that `spec` denotes in a program that runs as `entry`."""
        move = self.moved.get(spec.value)
        if move is not None:
            return spec.value, entry.stands.number(move)
        growing = is_accumulator(spec.value)
        per_microbatch = spec.value == INDEX or (spec.per_microbatch and not growing)
        return spec.value, entry.microbatch if per_microbatch else None


def dispatch_order(
    executable: Executable, programs: Sequence[Program]
) -> tuple[list[Dispatch], list[Dispatch]]:
    """The dispatches before the first that consumes an argument of the user, and the others.

    Follows every lane exactly, with all its actions. Round robin over the lanes: each advances by
    one action as soon as everything that this action reads has been made. Dispatch does not wait
    for results, so stage s works on microbatch k + 1 while stage s + 1 works on k. An update is
    dispatched only when no lane can advance otherwise: until then a failure costs nothing. With
    `Executable.early_updates` it takes its turn like any other action.

    Raises:
        ShardcError: SHARDC-260, an action can never run; no lane runs a program.
    """
    queues = _queues(executable, programs)
    state = _State(programs, queues)
    before: list[Dispatch] = []
    updates: list[Dispatch] = []
    order = before
    phases = (True,) if executable.early_updates else (False, True)
    while any(queues):
        moved = False
        for with_updates in phases:
            for queue in queues:
                if not queue:
                    continue
                task, entries = queue[0]
                if (task.kind == UPDATE) > with_updates or state.missing(entries):
                    continue
                if any(programs[entry.program].program.consumes_arguments for entry in entries):
                    order = updates
                order += entries
                state.made(entries)
                queue.popleft()
                moved = True
            if moved:
                break
        if not moved:
            heads = [(row, queue[0]) for row, queue in enumerate(queues) if queue]
            first = heads[0][0]
            column = len(executable.actions[first]) - len(queues[first])
            raise ShardcError(
                "; ".join(f"action {t} waits for {state.missing(own)}" for _, (t, own) in heads),
                where=f"row {first}, column {column} of the grid ({heads[0][1][0]})",
                help="move what makes these values before the action that waits",
                code="SHARDC-260",
            )
    return before, updates


Queue = deque[tuple[Task, list[Dispatch]]]


def _queues(executable: Executable, programs: Sequence[Program]) -> list[Queue]:
    """Per lane, its actions and the programs of each."""
    position: dict[tuple[int, FunctionKind, int], int] = {
        (p.program.stage, p.program.kind, p.program.round): i for i, p in enumerate(programs)
    }
    num_stages = executable.num_stages
    idle = set(range(len(programs)))
    lanes = parse_lanes(executable.actions)
    stands = moments(lanes)
    queues = []
    for lane in lanes:
        queue: Queue = deque()
        for task in lane:
            once = task.kind in ONCE_PER_STEP
            round_, microbatch = (task.microbatch, None) if once else (task.slice, task.microbatch)
            if task.kind in LINKS:
                microbatch = None
            entries = []
            for kind in KINDS_OF_ACTION[task.kind]:
                program = position.get((task.place(num_stages), kind, round_))
                if program is not None:
                    entries.append(Dispatch(str(task), program, microbatch, stands[task]))
                    idle.discard(program)
            queue.append((task, entries))
        queues.append(queue)
    if idle:
        names = ", ".join(programs[i].program.name for i in sorted(idle))
        raise ShardcError(f"no lane runs {names}", code="SHARDC-260")
    return queues


class _State:
    """The values that exist, and the number of additions that each accumulator still awaits."""

    def __init__(self, programs: Sequence[Program], queues: Sequence[Queue]) -> None:
        self._programs = programs
        self._keys = Keys(programs)
        self._known: set[Key] = set()
        self._additions = Counter(
            self._keys.of(spec, entry)
            for queue in queues
            for _, entries in queue
            for entry in entries
            for spec in programs[entry.program].results
            if is_accumulator(spec.value)
        )

    def missing(self, entries: Sequence[Dispatch]) -> list[str]:
        """The values that an action reads and that do not exist; its own programs make some."""
        own: set[Key] = set()
        missing = []
        for entry in entries:
            program = self._programs[entry.program]
            adds = {spec.value for spec in program.results if is_accumulator(spec.value)}
            for spec in program.args:
                key = self._keys.of(spec, entry)
                if is_computed(spec.value):
                    if key not in self._known and key not in own:
                        missing.append(spec.value)
                elif self._additions[key] and spec.value not in adds:
                    missing.append(spec.value)
            own.update(self._keys.of(spec, entry) for spec in program.results)
        return missing

    def made(self, entries: Sequence[Dispatch]) -> None:
        for entry in entries:
            for spec in self._programs[entry.program].results:
                key = self._keys.of(spec, entry)
                self._known.add(key)
                self._additions[key] -= is_accumulator(spec.value)
