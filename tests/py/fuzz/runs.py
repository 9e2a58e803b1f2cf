"""Random steps through `shardc.jit`, in the schedules, chunks and lowerings that there are.

`plans.py` runs the programs of a plan one after the other in the interpreter. Here XLA compiles
them, and the runtime runs two steps in the order of a schedule.
"""

import warnings
from random import Random
from typing import Any
from unittest import mock

import jax
import numpy as np

import shardc
from shardc.api.state.abstract import places_of
from shardc.check.differences import by_roundings, differing, narrowest_float
from shardc.check.values import Kind, with_special_values
from shardc.errors import RequestWarning, ShardcError
from shardc.ir.context import parse
from shardc.passes import plan_shardings
from shardc.plan.stages_spec import Recompute, StageSpec, StagesSpec
from tests.py.fuzz.kinds import KINDS, step_of
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

WHOLE = ("gpipe", "1f1b", "zb-h1", "zb-h2", "2bp-1f1b")
COPIED = ("chimera", "dualpipe", "bitpipe")
SLICED = ("terapipe", "seq1f1b", "2bp-terapipe")
CHUNKED = ("zb-v", "v-half", "v-min", "hanayo", "1f1b-v", "dualpipe-v", "breadth-first")
AGAIN: tuple[Recompute, ...] = ("full", "none", "selective")
# What a random step may not have: products that can wait, microbatches for copies to share, tokens
# in an order that slices keep, so many layers; and, where a plan by hand says how many,
# microbatches and stages.
ALLOWED = ("SHARDC-163", "SHARDC-164", "SHARDC-165", "SHARDC-242")
ALLOWED_BY_HAND = ("SHARDC-140", "SHARDC-142", "SHARDC-160", *ALLOWED)

Arrays = list[np.ndarray]


def random_options(
    random: Random, sliced: bool = False, recompute: Recompute | None = None
) -> dict[str, Any]:
    """Options of `shardc.jit` that fix a pipeline of one or two device groups.

    Args:
        sliced: whether most of them cut sequences into slices.
        recompute: what all stages recompute, under any schedule with whole stages; None: one way
            among others, under two of these.
    """
    way = random.choice(["whole", "chunked", "copied", "interleaved", "xla", "again", "auto"])
    if sliced and random.random() < 0.7:
        way = "sliced"
    way = "again" if recompute else way
    mesh = random.choice([(2,), (2, 2)])
    microbatches = random.choice([2, 4])
    shape: dict[str, Any] = {"stages": 2, "microbatches": microbatches, "mesh": mesh}
    if way == "again":
        again = recompute or random.choice(AGAIN)
        held = tuple(StageSpec(recompute=again) for _ in range(2))
        schedule = random.choice(WHOLE if recompute else ["gpipe", "1f1b"])
        spec = StagesSpec(1, held, microbatches=microbatches, schedule=schedule, mesh=mesh)
        return {"plan": spec}
    if way == "auto":
        return {"microbatches": random.choice(["auto", 2])}
    if way == "xla":
        shape["stages"] = random.choice([1, 2])
        schedule = random.choice(WHOLE) if shape["stages"] == 2 else "gpipe"
        return shape | {"schedule": schedule, "lowering": "xla"}
    if way == "sliced":
        slices, count = random.choice([2, 3]), random.choice([1, 2])
        return shape | {
            "schedule": random.choice(SLICED),
            "slices": slices,
            "microbatches": count,
            "lowering": random.choice(["local", "local", "xla"]),
        }
    if way == "interleaved":
        return shape | {"schedule": "interleaved-1f1b", "chunks": 2, "microbatches": 4}
    schedule = random.choice({"whole": WHOLE, "chunked": CHUNKED, "copied": COPIED}[way])
    return shape | {"schedule": schedule, "microbatches": 4}


def _is_allowed(error: ShardcError, options: dict[str, Any], values: Kind = "ordinary") -> bool:
    if values != "ordinary" and error.code == "SHARDC-271":
        return "slices" in options
    return error.code in (ALLOWED_BY_HAND if "plan" in options else ALLOWED)


def check_plan(kind: str, seed: int) -> str:
    """Makes a random plan of what a seed gives, lowers it and orders its step; nothing runs.

    Returns:
        "accepted", "JAX has no derivative", or "refused" with a code that is allowed.

    Raises:
        ShardcError: the plan is refused, for another reason than `ALLOWED` ones.
    """
    options = random_options(Random(f"plan {kind} {seed}"), bool(KINDS[kind].tokens[0]))
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", RequestWarning)
        step = step_of(kind, seed)
        wrapped = shardc.jit(step.function, donate_argnums=0, cluster=CLUSTER, **options)
        try:
            with mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
                planned = wrapped.lower(*step.args).plan()
            places_of(planned.executable, jax.devices())
        except NotImplementedError:  # JAX's word for a derivative that it does not have
            return "JAX has no derivative"
        except ShardcError as error:
            if not _is_allowed(error, options):
                raise
            return f"refused {error.code}"
    return "accepted"


def check_run(
    kind: str, seed: int, values: Kind = "ordinary", recompute: Recompute | None = None
) -> dict[str, Any]:
    """Two steps of what a seed gives, by `jax.jit` and by a random plan, as a line of results."""
    random = Random(f"run {kind} {seed}")
    options = random_options(random, bool(KINDS[kind].tokens[0]), recompute)
    said = {name: str(value) for name, value in options.items() if name != "plan"}
    line: dict[str, Any] = {"kind": kind, "seed": seed, "values": values, "options": said}
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", RequestWarning)
        step = step_of(kind, seed)
        numbers = np.random.default_rng(seed)
        tree = jax.tree.structure(step.args)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(step.args)]
        leaves = [with_special_values(leaf, values, numbers) for leaf in leaves]
        jitted = jax.jit(step.function)
        try:
            text = jitted.lower(*step.args).as_text()
        except NotImplementedError:  # as above
            return line | {"outcome": "JAX has no derivative"}

        def two_steps(function: Any, flat: Arrays) -> Arrays:
            state, *batch = jax.tree.unflatten(tree, flat)
            found: Arrays = []
            for _ in range(2):
                state, *more = function(state, *batch)
                found += [np.array(leaf) for leaf in jax.tree.leaves((state, more))]
            return found

        wrapped = shardc.jit(step.function, donate_argnums=0, cluster=CLUSTER, **options)
        want = two_steps(jitted, leaves)
        try:
            with mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
                got = two_steps(wrapped, leaves)
        except ShardcError as error:
            how = "refused" if _is_allowed(error, options, values) else "failed"
            return line | {"outcome": f"{how} {error.code}", "detail": str(error)}
        except Exception as error:  # noqa: BLE001 - every failure is a result
            return line | {"outcome": "failed", "detail": repr(error), "step": step.text}
        width = narrowest_float(parse(text).operation)
        found = differing(want, got, width)
        real = by_roundings(lambda args: two_steps(jitted, args), leaves, want, found, width)
    plan = wrapped.plan
    if "plan" in options:
        line["again"] = options["plan"].stages[0].recompute
    line["plan"] = [len(plan.stages), plan.num_microbatches, plan.schedule]
    if real:
        detail = "; ".join(f"result {i}: {text}" for i, text in real.items())
        return line | {"outcome": "differs", "detail": detail, "step": step.text}
    return line | {"outcome": "roundings decide" if found else "held"}
