"""Choose the sharding strategy of every op and value with the solver, stage by stage."""

import hashlib
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import microbatches_of
from shardc.analysis.shardings.known_problems import StageProblems
from shardc.analysis.shardings.memory_report import memory_at_peak
from shardc.analysis.shardings.planned_reshards import held_bytes
from shardc.analysis.shardings.sharding_report import planned_reshards, stage_report
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cluster import Cluster
from shardc.errors import InfeasibleError, PlanError
from shardc.ir.attributes import (
    CLUSTER,
    NUM_STAGES,
    STAGE,
    STAGE_REPORTS,
    data_attr,
    get_int,
)
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, symbol
from shardc.plan.layout import DeviceGroup, Mesh, device_groups, ranges
from shardc.plan.predicted import StageReport
from shardc.rewrite.local.planned_shardings import write_shardings
from shardc.solver.problem.problem import Ints, Problem, Solution, least_peak
from shardc.solver.solve import LimitError
from shardc.solver.solve_once import solve_once

MOST_ROUNDS = 8  # of solving a stage again because of what reshards hold


@dataclass(frozen=True)
class PlanShardings(Pass):
    """Writes the cheapest shardings that fit into memory: `sdy.sharding`, `shardc.in_shardings`.

    Works on outlined stage functions whose meshes are declared. All functions of a stage are
    planned together, so a parameter's sharding suits forward, backward and update at once. Stages
    on the same devices share their memory. Equal stages are solved once. Module attribute
    `shardc.stage_reports` says what to expect.

    Options:
        cluster: in text a built-in name, the path of a cluster file, or its JSON.
        memory_limit: bytes per device; 0 = the cluster's.
        stashes: for each stage the microbatches in flight; empty = all.
        time_limit: seconds for all stages together, by the clock; each gets its share of the rest.
        effort: work for each stage, in seconds of a slow machine (`shardc.solver.solve`).
        seed: of the solver.
        gap: the solver may stop when it has proven to be this close to the optimum.
        equal_layers: whether they share one choice (`shardc.solver.solve`): free, tied, relaxed.
        cutoff: seconds of a stage; the solver stops when it is proven that they are exceeded.
        ignored: names of user shardings to ignore.
        late_sums: axes over which accumulators stay partial sums until the update.
    """

    name = "shardc-plan-shardings"

    cluster: Cluster = field(default=Cluster.parse("cpu8"), metadata=in_text(Cluster.parse))
    memory_limit: int = 0
    stashes: tuple[int, ...] = ()
    time_limit: float = 60.0
    effort: float = 20.0
    seed: int = 0
    gap: float = 0.01
    equal_layers: str = "free"
    cutoff: float = math.inf
    ignored: tuple[str, ...] = ()
    late_sums: tuple[str, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        by_stage = _functions_by_stage(module)
        placed = _meshes_of(by_stage, meshes(module))
        groups = {
            stage: group
            for group in device_groups(placed.items(), self.cluster)
            for stage in group.stages
        }
        problems = self._problems(module, by_stage, placed, groups)
        solutions, made = self._solve(problems, placed, groups)
        nothing = StageReport({}, 0, 0, 0, 0.0, 0.0)
        for stage, built in problems.items():
            chosen = built.shardings(solutions[stage].choice)
            for function in by_stage[stage]:
                write_shardings(function, chosen[symbol(function)])
        module.attributes[CLUSTER] = data_attr(self.cluster)
        reports = [made.get(stage, nothing) for stage in sorted(by_stage)]
        module.attributes[STAGE_REPORTS] = data_attr(reports)

    def _problems(
        self,
        module: ir.Operation,
        by_stage: dict[int, list[ir.Operation]],
        placed: dict[int, Mesh],
        groups: dict[int, DeviceGroup],
    ) -> dict[int, StageProblem]:
        """The problem of each stage that has functions.

        Raises:
            LimitError: some stages on the same devices cannot fit, whatever is chosen.
        """
        building = StageProblems(
            module, len(by_stage), self.cluster, frozenset(self.ignored), self.late_sums
        )
        problems: dict[int, StageProblem] = {}
        short: dict[int, LimitError] = {}  # by the first stage on the same devices
        for stage, mesh in placed.items():
            limit = self._limit(groups[stage])
            count = len(microbatches_of(module, stage))
            stashes = self.stashes[stage] if self.stashes else count
            problems[stage] = building.build(stage, by_stage[stage], mesh, count, stashes, limit)
            known = [each for each in groups[stage].stages if each in problems]
            least = sum(least_peak(problems[each].problem) for each in known)
            if least > limit:
                short[groups[stage].stages[0]] = LimitError(limit, None, least)
        if short:  # at once: a search would find nothing
            stage = max(short, key=lambda each: short[each].missing_bytes)
            raise _of_stage(short[stage], stage, placed[stage], "too large, too", [*short])
        return problems

    def _limit(self, group: DeviceGroup) -> int:
        """The bytes that each device of a group may hold."""
        return self.memory_limit or group.memory_bytes

    def _solve(
        self,
        problems: dict[int, StageProblem],
        placed: dict[int, Mesh],
        groups: dict[int, DeviceGroup],
    ) -> tuple[dict[int, Solution], dict[int, StageReport]]:
        """A choice for each stage and its report; at most two of several equal stages are solved.

        Raises:
            LimitError: no choice that was found for a stage fits its devices.
        """
        solutions: dict[int, Solution] = {}
        held: dict[int, int] = {}
        made: dict[int, StageReport] = {}
        deadline_s = time.monotonic() + self.time_limit
        digests = {stage: _digest(built) for stage, built in problems.items()}
        known: dict[str, list[tuple[StageProblem, Solution]]] = {}
        # From the end: the last stages hold the least, and their choice may fit earlier ones.
        for stage, built in reversed(problems.items()):
            mesh, group = placed[stage], groups[stage]
            room = _room(stage, problems, group, held, self._limit(group))
            built = replace(built, problem=replace(built.problem, usage_limit=room))
            alike = known.setdefault(digests[stage], [])
            waiting = [each for each in problems if each not in solutions]
            if not alike and len(group.stages) > 1:
                # Each has other stages beside it: a choice made without a limit serves all that
                # have room for it.
                free = replace(built, problem=replace(built.problem, usage_limit=None))
                nothing = np.zeros(0, np.int64)
                share_s = _share_s(deadline_s, waiting, digests)
                alike.append((free, self._cheapest(free.problem, nothing, share_s)))
            solution = self._known(built, alike, mesh, room)
            # The second of several equal stages to be solved is the one that holds the most: its
            # choice fits those in between, and it sets their pace.
            most = [
                each
                for each in waiting
                if digests[each] == digests[stage] and len(groups[each].stages) == 1
            ]
            for each in [*most[:1], stage] if alike else [stage]:
                if solution is not None:
                    break
                whole = problems[each].problem
                tried = replace(problems[each], problem=replace(whole, usage_limit=room))
                share_s = _share_s(deadline_s, waiting, digests)
                try:
                    found = self._solved(tried, placed[each], room, share_s)
                except LimitError as error:
                    raise _of_stage(error, each, placed[each], "not solved", waiting) from None
                alike.append((tried, found))
                solution = self._known(built, alike, mesh, room)
            assert solution is not None, "a stage that is solved has a solution that fits"
            solutions[stage] = solution
            made[stage] = stage_report(built, solution, mesh, self.cluster)
            held[stage] = made[stage].peak_bytes
        return solutions, made

    def _known(
        self,
        built: StageProblem,
        alike: list[tuple[StageProblem, Solution]],
        mesh: Mesh,
        limit: int,
    ) -> Solution | None:
        """The cheapest solution of an equal stage that fits here, if it is close to the optimum.

        The lower bound of an equal stage holds here, too, if that stage holds no more bytes and its
        limit is no lower: every choice that fits here fits there.
        """
        bound, close = -math.inf, False
        fitting: list[Solution] = []
        for other, solution in alike:
            buffers = planned_reshards(built, solution.choice, mesh, self.cluster).buffers()
            fits = memory_at_peak(built, solution.choice, buffers).total <= limit
            if fits:
                fitting.append(solution)
            most = other.problem.usage_limit
            holds_less = all(
                (theirs <= own).all()
                for theirs, own in zip(other.problem.usages, built.problem.usages, strict=True)
            )
            if most is None or (limit <= most and holds_less):
                bound, close = max(bound, solution.lower_bound), close or fits
        best = min(fitting, key=lambda each: each.objective, default=None)
        if best is None or not (close or best.objective * (1.0 - 2.0 * self.gap) <= bound):
            return None
        return replace(best, lower_bound=min(bound, best.objective))

    def _solved(self, built: StageProblem, mesh: Mesh, limit: int, time_limit_s: float) -> Solution:
        """The cheapest choice that fits, including what its reshards hold.

        The bytes of a reshard depend on two nodes, but the problem limits the bytes of single
        nodes. If a choice is too large because of its reshards, the next one must leave room for
        what they held, at the times when they held it. The first lower bound, without such room,
        holds for all rounds. The time limit is for all rounds together.
        """
        deadline_s = time.monotonic() + time_limit_s
        least = least_peak(built.problem)
        end = max((hi for _, hi in built.problem.intervals), default=0)
        reserved = solvable = np.zeros(end, np.int64)
        bound = smallest = None
        for _ in range(MOST_ROUNDS):
            left_s = deadline_s - time.monotonic()
            if bound is not None and left_s <= 0.0:
                break
            try:
                solution = self._cheapest(built.problem, reserved, max(left_s, 0.0))
            except InfeasibleError:
                if bound is None:
                    raise
                reserved = (reserved + solvable) // 2
                continue
            bound = solution.lower_bound if bound is None else bound
            buffers = planned_reshards(built, solution.choice, mesh, self.cluster).buffers()
            peak = memory_at_peak(built, solution.choice, buffers).total
            if peak <= limit:
                return replace(solution, lower_bound=bound)
            smallest = peak if smallest is None else min(smallest, peak)
            solvable = reserved
            reserved = np.maximum(reserved, held_bytes(buffers, end))
        raise LimitError(limit, smallest, least)

    def _cheapest(self, problem: Problem, reserved: Ints, time_limit_s: float) -> Solution:
        """The cheapest choice that leaves room for the given bytes at each time."""
        steps = [0, *(np.flatnonzero(np.diff(reserved)) + 1).tolist(), len(reserved)]
        room = [(at, to) for at, to in itertools.pairwise(steps) if at < to and reserved[at]]
        solution = solve_once(
            replace(
                problem,
                costs=[*problem.costs, *(np.zeros(1) for _ in room)],
                usages=[*problem.usages, *(reserved[at : at + 1] for at, _ in room)],
                intervals=[*problem.intervals, *room],
            ),
            time_limit_s=time_limit_s,
            effort_s=self.effort,
            seed=self.seed,
            gap=self.gap,
            equal_layers=self.equal_layers,
            cutoff=self.cutoff,
            hint=[0] * (problem.num_nodes + len(room)),  # whole, or as requested: always allowed
        )
        return replace(solution, choice=solution.choice[: problem.num_nodes])


def _functions_by_stage(module: ir.Operation) -> dict[int, list[ir.Operation]]:
    """The functions of each stage; a stage may have none, in a step without results."""
    found: dict[int, list[ir.Operation]] = {
        stage: [] for stage in range(get_int(module, NUM_STAGES) or 1)
    }
    for function in functions(module):
        found.setdefault(get_int(function, STAGE) or 0, []).append(function)
    return found


def _meshes_of(by_stage: dict[int, list[ir.Operation]], named: dict[str, Mesh]) -> dict[int, Mesh]:
    """The mesh of each stage that has functions; a program may only pass arguments on.

    Raises:
        PlanError: SHARDC-101, a stage has no mesh.
    """
    found = {stage: named.get(f"stage{stage}") for stage, own in sorted(by_stage.items()) if own}
    missing = [stage for stage, mesh in found.items() if mesh is None]
    if missing:
        raise PlanError(
            f"stage {missing[0]} has no mesh",
            help="run shardc-assign-meshes first",
            code="SHARDC-101",
        )
    return {stage: mesh for stage, mesh in found.items() if mesh is not None}


def _share_s(deadline_s: float, waiting: Sequence[int], digests: dict[int, str]) -> float:
    """Seconds for one of the remaining distinct problems."""
    left_s = max(deadline_s - time.monotonic(), 0.0)
    return left_s / len({digests[each] for each in waiting})


def _room(
    stage: int,
    problems: dict[int, StageProblem],
    group: DeviceGroup,
    held: dict[int, int],
    limit: int,
) -> int:
    """The bytes a stage may hold beside the others of its group. Planned stages keep what they
    hold, even if not all at the same time; the others share the rest."""
    stages = group.stages
    waiting = {each: least_peak(problems[each].problem) for each in stages if each not in held}
    spare = limit - sum(waiting.values()) - sum(held.get(each, 0) for each in stages)
    return waiting[stage] + spare // len(waiting)


def _of_stage(
    error: LimitError, stage: int, mesh: Mesh, what: str, others: Sequence[int]
) -> LimitError:
    """The same error, naming the stage that does not fit, and what the others are."""
    others = [each for each in others if each != stage]
    error.stage = stage
    rest = f" ({what}: stage{'s' * (len(others) > 1)} {ranges(tuple(others))})" if others else ""
    error.message = f"stage {stage}, on devices {ranges(mesh.device_ids)}: {error.message}{rest}"
    return error


def _digest(built: StageProblem) -> str:
    """Equal digests mean equal problems, except for the bytes of their values."""
    digest = hashlib.sha256()
    problem = built.problem
    digest.update(repr(list(map(len, problem.costs))).encode())
    for array in problem.costs:
        digest.update(array.tobytes())
    tables = {id(table): table for table in problem.edge_costs}
    names = {key: hashlib.sha256(t.tobytes()).digest() for key, t in tables.items()}
    for edge, table in zip(problem.edges, problem.edge_costs, strict=True):
        digest.update(repr(edge).encode() + names[id(table)])
    digest.update(repr((problem.intervals, problem.usage_limit)).encode())
    for info in built.edge_reshards:
        digest.update(repr((info.shape, info.dtype, info.needed)).encode())
    return digest.hexdigest()
