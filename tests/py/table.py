"""Where shardc must hold: programs x stages x microbatches x schedules, and which of them CI runs.

`verdict(cell, dtype)` runs one cell on 8 virtual devices through `shardc.jit` and judges it by the
numerical contract (`shardc.check.numerics`). `benchmarks/table.py` runs all cells.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import shardc
from shardc.api.stages import Compiled
from shardc.check.numerics import Report, compare
from shardc.cluster import Cluster, Device, Level
from shardc.plan.decisions import Plan
from tests.py.programs import PROGRAMS, build, leaves

STEPS = 3
NEARBY_RUNS = 12
STAGES = (1, 2, 4)
MICROBATCHES = (1, 2, 4)
SCHEDULES = ("gpipe", "1f1b")
MESHES = {1: (2, 4), 2: (2, 2), 4: (2,)}  # by number of stages: 8 devices in all
ONE_MICROBATCH_ONLY = ("mlp_batch_norm",)  # more would change what it computes, and are refused

# Links that cost next to nothing beside arithmetic, so that even these small programs are sharded.
CLUSTER = Cluster(
    "table",
    Device("slow", 1 << 30, {"default": 1e9}, 1e10),
    (Level("links", 8, 1e11, 1e-7),),
)


class Cell(NamedTuple):
    """One entry of the table."""

    program: str
    stages: int
    microbatches: int
    schedule: str

    def __str__(self) -> str:
        return f"{self.program}-{self.stages}-{self.microbatches}-{self.schedule}"


def all_cells() -> list[Cell]:
    """Every cell that must hold."""
    product = itertools.product(PROGRAMS, STAGES, MICROBATCHES, SCHEDULES)
    cells = [Cell(*each) for each in product]
    return [c for c in cells if c.microbatches == 1 or c.program not in ONE_MICROBATCH_ONLY]


def pairwise(cells: Sequence[Cell]) -> list[Cell]:
    """Few of `cells` that together have every pair of values that any cell has.

    Greedy: each time the cell with the most pairs that are still missing; of equals the one whose
    pairs were chosen least often, the first of them, so the choice is the same on every machine.
    """
    missing = {pair for cell in cells for pair in pairs(cell)}
    seen: Counter[Any] = Counter()
    chosen = []
    while missing:
        best = max(
            cells, key=lambda c: (len(missing & pairs(c)), -sum(seen[pair] for pair in pairs(c)))
        )
        chosen.append(best)
        missing -= pairs(best)
        seen.update(pairs(best))
    return sorted(chosen, key=cells.index)


def pairs(cell: Cell) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    """Every two (field, value) of a cell."""
    return set(itertools.combinations(zip(cell._fields, cell, strict=True), 2))


@functools.cache
def reference(program: str, dtype: str) -> dict[str, np.ndarray]:
    """Leaves of the results after `STEPS` steps by `jax.jit` on one device."""
    with jax.enable_x64(dtype == "float64"):
        built = build(program, dtype)
        return run(jax.jit(built.step), built.args)


@functools.cache
def nearby(program: str) -> tuple[dict[str, np.ndarray], ...]:
    """As `reference` in float32, of steps that differ from it by roundings only.

    One run is too small a sample of the error that one device makes: adam divides by the size of
    gradients, and where one is nearly zero there is little but rounding. So the last bit of half
    the weights is moved, if the step is smooth, and the rows of the batch are in another order, if
    that is all the same.
    """
    built = build(program, "float32")
    (state, batch, *rest), step = built.args, jax.jit(built.step)
    (rows,) = {len(leaf) for leaf in jax.tree.leaves(batch)}
    rng = np.random.default_rng(0)

    def moved(leaf: Any) -> Any:
        if not built.smooth or not isinstance(leaf, np.ndarray) or leaf.dtype != np.float32:
            return leaf
        side = rng.choice(np.float32([-np.inf, np.inf]), leaf.shape)
        return np.where(rng.random(leaf.shape) < 0.5, leaf, np.nextafter(leaf, side))

    found = []
    for _ in range(NEARBY_RUNS):
        order = rng.permutation(rows) if built.any_order else np.arange(rows)
        shuffled = jax.tree.map(lambda leaf, order=order: np.asarray(leaf)[order], batch)
        weights = jax.tree.map(moved, state["params"])
        found.append(run(step, ({**state, "params": weights}, shuffled, *rest)))
    return tuple(found)


def run(step: Any, args: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Leaves of the results after `STEPS` steps, each on the state that the one before returned."""
    results = ()
    for _ in range(STEPS):
        results = step(*args)
        args = (results[0], *args[1:])
    return leaves(results)


def compiled(cell: Cell, dtype: str, **options: Any) -> Compiled:
    """The planned and compiled step of a cell; under float64 call it in JAX's x64 mode."""
    built = build(cell.program, dtype)
    step = shardc.jit(
        built.step,
        donate_argnums=built.donate_argnums,
        **{
            "cluster": CLUSTER,
            "stages": cell.stages,
            "microbatches": cell.microbatches,
            "schedule": cell.schedule,
            "mesh": MESHES[cell.stages],
            **options,
        },
    )
    return step.lower(*built.args).compile()


def verdict(cell: Cell, dtype: str, **options: Any) -> tuple[Plan, Report]:
    """The plan of a cell, and how its results compare with one device's."""
    built = build(cell.program, dtype)
    with jax.enable_x64(dtype == "float64"):
        step = compiled(cell, dtype, **options)
        got = run(step, built.args)
    assert (step.plan.num_stages, step.plan.num_microbatches) == cell[1:3]
    exact = reference(cell.program, "float64")
    if dtype == "float64":
        return step.plan, compare(exact, None, got)
    own, kinds = reference(cell.program, dtype), built.kinds(list(exact))
    others = nearby(cell.program) if "amplified" in kinds.values() else ()
    start = leaves((built.args[0],))
    for name, signless in of_no_sign(exact, (own, *others)).items():
        steps = 2 * np.abs(exact[name] - start[name]).max()  # there and back
        near = np.abs(got[name] - exact[name]) <= steps
        got[name] = np.where(signless & near, exact[name].astype(got[name].dtype), got[name])
    return step.plan, compare(exact, own, got, kinds, others)


MOST_SIGNLESS = 0.03  # of all weights of a program (of a GPT: in float32 one, in bfloat16 2.5 %)


def of_no_sign(
    exact: dict[str, np.ndarray], runs: Sequence[dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """For each leaf of weights that adam updates where one device does not tell the sign of the
    gradient: a run of it errs by more than the mean gradient is large.

    Adam takes a whole step by the sign of such an element, however small it is. It is judged by the
    gradient's mean, which is a result like others; of where the step leads it is only asked that it
    is no farther away than the leaf's largest steps, there and back.
    """
    found = {}
    for name, leaf in exact.items():
        moment = name.replace("['params']", "['optimizer'][0].mu")
        if moment != name and moment in exact and leaf.shape == exact[moment].shape:
            error = np.max([np.abs(run[moment] - exact[moment]) for run in runs], axis=0)
            found[name] = error >= np.abs(exact[moment])
    count = sum(mask.sum() for mask in found.values())
    assert count <= MOST_SIGNLESS * sum(mask.size for mask in found.values()), count
    return found
