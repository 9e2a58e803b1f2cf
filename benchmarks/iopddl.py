"""Solve instances of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism, and score them.

    python benchmarks/iopddl.py FILES... [--time-limit auto|SECONDS] [--seed N] [--format json]
                                [--clock wall|none] [--processes N]

An instance is JSON, plain or gzipped: {"problem": {"nodes": {"intervals", "costs", "usages"},
"edges": {"nodes", "costs"}, "usage_limit"}}; costs are integers, 10^18 means forbidden. Prints per
instance the objective, the lower bound, whether the answer is feasible, the seconds (loading
included), this process's peak memory and the score: best of the 20 teams over ours. Answers are
scored by an evaluator in exact integers that shares no code with the solver. `auto` is the limit
that the contest gave the instance, by the clock (on 8 cores).

By the clock, the whole limit is used, until an answer is proven optimal. Each core runs searches
that know nothing of each other, with seeds of their own (`--processes`): every other core a long
one, the rest short ones, for half of the time. Then comes one that starts from the best mixture of
these answers (`shardc.solver.combine`). The best mixture of the answers of all cores is the answer,
improved in what is left of the time. On a
busy machine `--clock none` leaves the clock out, and the solver runs once, on a budget of work that
follows from the limit: the answer is that of a quiet machine if `processor_seconds` (all threads)
stays below the limit.

Limits and best results: github.com/google/iopddl and the contest's report (Moffitt and Fegade,
ASPLOS/EuroSys 2025 contest track); N is one of the hidden instances.
"""

import argparse
import gc
import gzip
import itertools
import json
import math
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from shardc.errors import InfeasibleError, ShardcError
from shardc.solver.combine import combine
from shardc.solver.problem.problem import Problem, Solution
from shardc.solver.solve import solve

FORBIDDEN = 10**18
DEFAULT_LIMIT_S = 180.0
# Name of the instance -> limit in seconds, best of the teams.
CONTEST = {
    "A": (60.0, 6_548_641_531),
    "G": (120.0, 217_039),
    "K": (180.0, 2_274_276_676),
    "M": (180.0, 49_928_460_991),
    "N": (180.0, 202_739_586_553),
    "S": (240.0, 1_534_613_444),
}
RESCORING_S = 3.0  # kept back of the limit for what follows the solver
EFFORT = 0.7  # share of the limit that becomes the work of a single run
SEEDS = 1000  # between those of two processes
# Shares of the limit: the work of one search that knows no other answer, of every other process;
# the last part, in which the best mixture is improved; what is kept back of it to combine the
# answers of all cores; and what is left when nothing more is begun: contraction can't be cut short.
ALONE = (0.7, 0.14)
IMPROVED, COMBINED, LEAST = 0.5, 0.1, 0.04

Raw = dict[str, Any]
Found = list[Solution]


def read(path: Path) -> Raw:
    """The instance as it stands in the file."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    raw: Raw = json.loads(text)["problem"]
    return raw


def to_problem(raw: Raw) -> Problem:
    """For the solver; equal edge tables become one array."""

    def costs(numbers: list[int]) -> np.ndarray:
        found = np.array(numbers, np.float64)
        found[found >= FORBIDDEN] = np.inf
        return found

    nodes, edges = raw["nodes"], raw["edges"]
    node_costs = [costs(each) for each in nodes["costs"]]
    tables: dict[tuple[int, int, bytes], np.ndarray] = {}
    edge_costs = []
    for (u, v), numbers in zip(edges["nodes"], edges["costs"], strict=True):
        table = costs(numbers)
        key = (len(node_costs[u]), len(node_costs[v]), table.tobytes())
        edge_costs.append(tables.setdefault(key, table.reshape(key[:2])))
    return Problem(
        costs=node_costs,
        edges=[(u, v) for u, v in edges["nodes"]],
        edge_costs=edge_costs,
        usages=[np.array(each, np.int64) for each in nodes["usages"]],
        intervals=[(lo, hi) for lo, hi in nodes["intervals"]],
        usage_limit=raw["usage_limit"],
    )


def score(raw: Raw, choice: Sequence[int]) -> tuple[int, bool]:
    """Cost of a choice in exact integers, and whether it is allowed, as the contest defines it."""
    nodes, edges = raw["nodes"], raw["edges"]
    picked = [costs[c] for costs, c in zip(nodes["costs"], choice, strict=True)]
    for (u, v), costs in zip(edges["nodes"], edges["costs"], strict=True):
        picked.append(costs[choice[u] * len(nodes["costs"][v]) + choice[v]])
    last = max((hi for _, hi in nodes["intervals"]), default=0)
    changes = [0] * (last + 1)
    for (lo, hi), usages, c in zip(nodes["intervals"], nodes["usages"], choice, strict=True):
        if lo < hi:
            changes[lo] += usages[c]
            changes[hi] -= usages[c]
    live, peak = 0, 0
    for change in changes:
        live += change
        peak = max(peak, live)
    allowed = max(picked, default=0) < FORBIDDEN and peak <= raw["usage_limit"]
    return sum(picked), allowed


def searches(
    problem: Problem, seed: int, limit_s: float, left_s: Callable[[], float], one: float
) -> Found:
    """Answers of searches that know nothing of each other, for the first part of the time; then
    their best mixture, and what a search makes of it that has nearly all the rest. Ends early with
    an answer that is proven optimal.

    Args:
        one: share of the limit that is the work of one search.
    """
    found: Found = []
    for own_seed in itertools.count(seed):
        if left_s() < IMPROVED * limit_s or (found and found[-1].optimal):
            break
        asked = {"effort_s": one * limit_s, "seed": own_seed}
        with suppress(InfeasibleError):  # it may only have been too short
            found.append(solve(problem, time_limit_s=left_s(), **asked))
    rest_s = left_s() - COMBINED * limit_s
    if not found:
        return [solve(problem, time_limit_s=rest_s, seed=seed)]
    if found[-1].optimal:
        return found
    return [*found, best_of(problem, found, seed, rest_s, LEAST * limit_s)]


def together(run: Callable[[int], Found], processes: int) -> Found:
    """The answers of several processes, each of which runs with its number. If this one, number 0,
    proves its own to be optimal, the others are stopped."""
    forked = multiprocessing.get_context("fork")
    others = []
    for number in range(1, processes):
        receiver, sender = forked.Pipe(duplex=False)
        asked = (run, number, sender)
        others.append((forked.Process(target=answer, args=asked, daemon=True), receiver))
        others[-1][0].start()
        sender.close()  # so that a process that ends without an answer is noticed
    try:
        found = run(0)
        for _, receiver in others if not found[-1].optimal else ():
            with suppress(EOFError):
                found += receiver.recv()
    finally:
        for process, _ in others:
            process.terminate()
            process.join()
    return found


def answer(run: Callable[[int], Found], number: int, sender: Connection) -> None:
    """Sends the answers that `run` gives, or nothing if it gives none."""
    with sender, suppress(ShardcError):
        sender.send(run(number))


def best_of(problem: Problem, found: Found, seed: int, seconds: float, least_s: float) -> Solution:
    """The best mixture of several answers, and what a search makes of it in the time left.

    Args:
        least_s: with less time left, nothing more is begun.
    """
    ends_s = time.perf_counter() + seconds
    best = min(found, key=lambda each: each.objective)
    best = replace(best, lower_bound=max(each.lower_bound for each in found))
    if len(found) > 1 and seconds > least_s and not best.optimal:
        best = combine(problem, found, time_limit_s=seconds, seed=seed)
    rest_s = ends_s - time.perf_counter()
    if rest_s < least_s or best.optimal:
        return best
    more = solve(problem, time_limit_s=rest_s, effort_s=rest_s, seed=seed, hint=best.choice)
    bound = max(best.lower_bound, more.lower_bound)
    return replace(min(best, more, key=lambda each: each.objective), lower_bound=bound)


def measure(
    path: Path, time_limit: str, seed: int, clock: str, processes: int = 1
) -> dict[str, Any]:
    """Loads, solves and scores one instance."""
    start_s, start_cpu_s = time.perf_counter(), processor_s()
    name = path.name.split(".")[0]
    limit_s, best = CONTEST.get(name, (DEFAULT_LIMIT_S, None))
    if time_limit != "auto":
        limit_s = float(time_limit)
    gc.disable()  # millions of small lists, none of them garbage
    raw = read(path)
    problem = to_problem(raw)
    gc.enable()
    gc.freeze()
    result: dict[str, Any] = {"instance": name, "seed": seed, "time_limit_s": limit_s}
    result["clock"], result["processes"] = clock, processes

    def left_s() -> float:
        return limit_s - (time.perf_counter() - start_s) - RESCORING_S

    def run(number: int) -> Found:
        own_seed, one = seed + SEEDS * number, ALONE[number % 2]
        return searches(problem, own_seed, limit_s, left_s, one)

    try:
        if clock == "wall":
            found = together(run, processes)
            solution = best_of(problem, found, seed, left_s(), LEAST * limit_s)
        else:
            effort_s = EFFORT * limit_s
            found = [solve(problem, time_limit_s=math.inf, effort_s=effort_s, seed=seed)]
            solution = found[0]
        result["runs"] = len(found)
        result["log"] = solution.log
        objective, feasible = score(raw, solution.choice)
        bound: float | None = solution.lower_bound
    except ShardcError as error:
        objective, feasible, bound = None, False, None
        result["problem"] = str(error).splitlines()[0]
    return {
        **result,
        "objective": objective,
        "lower_bound": bound,
        "feasible": feasible,
        "seconds": round(time.perf_counter() - start_s, 1),
        "processor_seconds": round(processor_s() - start_cpu_s, 1),
        "peak_memory_bytes": sum(each.ru_maxrss for each in usages()) * 1024,
        "score": best / objective if best and feasible and objective else None,
    }


def usages() -> list[resource.struct_rusage]:
    """What this process and the largest of its ended ones have used."""
    return [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def processor_s() -> float:
    """Processor time so far, that of ended processes included."""
    return sum(each.ru_utime + each.ru_stime for each in usages())


def print_table(results: list[dict[str, Any]]) -> None:
    print(
        "| instance | seed | objective | lower bound | feasible | seconds | processor | memory"
        " | score |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for each in results:
        bound = "-" if each["lower_bound"] is None else f"{each['lower_bound']:,.0f}"
        objective = "-" if each["objective"] is None else f"{each['objective']:,}"
        worth = "-" if each["score"] is None else f"{each['score']:.4f}"
        memory = f"{each['peak_memory_bytes'] / 2**30:.1f} GiB"
        print(
            f"| {each['instance']} | {each['seed']} | {objective} | {bound} | {each['feasible']}"
            f" | {each['seconds']} | {each['processor_seconds']} | {memory} | {worth} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--time-limit", default="auto", help="auto, or seconds per instance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", choices=["wall", "none"], default="wall")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    results = []
    for path in options.files:
        results.append(
            measure(path, options.time_limit, options.seed, options.clock, options.processes)
        )
        if options.format == "json":
            print(json.dumps(results[-1]), flush=True)
    if options.format == "table":
        print_table(results)
    return 0 if all(each["feasible"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
