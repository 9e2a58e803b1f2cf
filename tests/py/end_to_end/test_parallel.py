"""A GPT's plan is really parallel: work and state are divided, not copied.

What XLA compiled and what the runtime would hold is counted; predictions are not trusted.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax.extend.mlir import ir

import shardc
from shardc import compiler, cutting
from shardc.analysis.program.flops import op_cost
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.cost.submeshes import mesh_of
from shardc.importer.from_jax import import_function
from shardc.ir.attributes import KIND, STAGE, get_int, get_str
from shardc.ir.walk import functions, main_function, symbol, walk
from shardc.passes import plan_shardings
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.plan.shape import PipelineShape
from shardc.runtime.memory_in_use import slot_bytes
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Free, Run
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import print_lanes
from shardc.solver.problem.problem import Problem, Solution
from tests.py.hlo_text import dot_flops
from tests.py.parallel_gpt import MICROBATCHES, STAGES, program, tight_gpt, tight_plan
from tests.py.table import CLUSTER

NUM_DEVICES = 8


def calls(kind: str) -> int:
    """How often a step runs a stage function."""
    return MICROBATCHES if kind in ("forward", "backward") else 1


def mlir_dot_flops(function: ir.Operation) -> int:
    """FLOPs of the dots of a function, over all devices."""
    return sum(op_cost(op).flops for op in walk(function) if op.name == "stablehlo.dot_general")


@functools.cache
def prepared() -> ir.Module:
    """The GPT as one module, untouched but for inlining."""
    built = program()
    imported = import_function(built.step, built.args, {}, donate_argnums=built.donate_argnums)
    compiler.prepare(imported.module)
    return imported.module


@functools.cache
def outlined(num_microbatches: int) -> dict[str, tuple[int, str, int, int]]:
    """Name of each stage function -> (stage, kind, dot FLOPs, number of ops)."""
    split = cutting.split(prepared(), num_microbatches, None)
    starts = layer_positions(split.operation, at_least=STAGES)
    cuts = tuple(starts[len(starts) * stage // STAGES] for stage in range(1, STAGES))
    meshes = (mesh_of((2, 2), range(4)), mesh_of((2, 2), range(4, 8)))
    module = cutting.cut(split, PipelineShape(num_microbatches, cuts, meshes, "1f1b"))
    with module.context:
        return {
            symbol(f): (
                get_int(f, STAGE) or 0,
                get_str(f, KIND) or "",
                mlir_dot_flops(f),
                sum(1 for _ in walk(f)),
            )
            for f in functions(module.operation)
        }


@functools.cache
def original_dot_flops() -> int:
    with prepared().context:
        return mlir_dot_flops(main_function(prepared().operation))


# ---- work ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nearly_all_dot_flops_are_sharded() -> None:
    """As if every dot were either split over all devices of its stage or copied to each."""
    compiled = tight_gpt()
    texts = compiled.hlo_texts()
    on_devices = 0
    for each in compiled.executable.programs:
        num_devices = len(compiled.executable.meshes[each.stage].device_ids)
        assert num_devices == NUM_DEVICES // STAGES
        on_devices += dot_flops(texts[each.name]) * num_devices * calls(each.kind)
    whole = original_dot_flops()
    copied = (on_devices / whole - 1) / (NUM_DEVICES // STAGES - 1)
    assert 0.0 <= copied <= 0.1
    # The same sum shows that nothing is computed again for another microbatch or stage.
    assert on_devices <= 1.02 * whole
    flops = [stage.num_flops for stage in compiled.plan.stages]
    assert max(flops) <= 1.5 * sum(flops) / STAGES


def test_no_stage_has_much_more_than_its_share() -> None:
    flops = [0] * STAGES
    for stage, kind, num_flops, _ in outlined(MICROBATCHES).values():
        flops[stage] += num_flops * calls(kind)
    assert max(flops) <= 1.5 * sum(flops) / STAGES
    assert sum(flops) <= 1.02 * original_dot_flops()


def test_an_action_is_one_microbatch_of_the_work() -> None:
    whole, parts = outlined(1), outlined(MICROBATCHES)
    for kind in ("forward", "backward"):
        of_batch, of_part = (
            sum(flops for _, k, flops, _ in table.values() if k == kind) for table in (whole, parts)
        )
        assert of_part == pytest.approx(of_batch / MICROBATCHES, rel=0.05)


def test_stage_programs_are_as_long_for_any_number_of_microbatches() -> None:
    sizes = [{name: size for name, (*_, size) in outlined(m).items()} for m in (2, 4, 16)]
    assert sizes[0] == sizes[1] == sizes[2]


# ---- memory -------------------------------------------------------------------------------------


def tape_of(executable: Executable) -> Any:
    """The runtime's instructions, without compiling anything."""
    programs: Any = [
        SimpleNamespace(program=p, args=p.args, results=p.results, donated=p.donated)
        for p in executable.programs
    ]
    return build_tape(executable, programs)


@pytest.mark.slow
def test_state_is_divided_under_a_tight_limit() -> None:
    executable = tight_plan().executable
    tape = tape_of(executable)
    on_device, whole = [0] * STAGES, 0
    for argument, place in zip(executable.arguments, tape.primary, strict=True):
        if argument.aliased_result is not None:
            slot = tape.slots[place]
            on_device[slot.group] += slot_bytes(executable, slot)
            whole += math.prod(argument.shape) * np.dtype(argument.dtype).itemsize
    assert max(on_device) <= 1.3 * whole / NUM_DEVICES


def peak_stash_bytes(executable: Executable) -> list[int]:
    """Per stage the most bytes on one device that wait from forward to backward at any time."""
    tape = tape_of(executable)
    kinds = [each.kind for each in executable.programs]
    freed_with, at = {}, -1
    for each in tape.instructions:
        at += isinstance(each, Run)
        if isinstance(each, Free):
            freed_with.update(dict.fromkeys(each.slots, at))
    stashed = {
        slot
        for i, each in enumerate(tape.runs)
        if kinds[each.program] == "forward"
        for slot in each.results
        if freed_with.get(slot, i) > i and tape.slots[slot].microbatch is not None
    }
    held, peak = [0] * STAGES, [0] * STAGES
    for each in tape.instructions:
        if isinstance(each, Run):
            for slot in stashed & set(each.results):
                stage = tape.slots[slot].group
                held[stage] += slot_bytes(executable, tape.slots[slot])
                peak[stage] = max(peak[stage], held[stage])
        if isinstance(each, Free):
            for slot in stashed & set(each.slots):
                held[tape.slots[slot].group] -= slot_bytes(executable, tape.slots[slot])
    assert held == [0] * STAGES
    return peak


@pytest.mark.slow
def test_1f1b_stashes_less_than_gpipe_as_predicted() -> None:
    executable = tight_plan().executable
    module = compiler.replay(prepared(), tight_plan().plan)
    work = cutting.work_of(module, PipelineShape.of(tight_plan().plan))
    gpipe = print_lanes(schedule_named("gpipe").generate(work))
    ours = peak_stash_bytes(executable)
    theirs = peak_stash_bytes(msgspec.structs.replace(executable, actions=gpipe))
    for stage in range(STAGES):
        few, many = (schedule_named(name).in_flight(work)[stage] for name in ("1f1b", "gpipe"))
        assert few < many == MICROBATCHES
        assert ours[stage] / theirs[stage] == pytest.approx(few / many, rel=0.1)


# ---- the planner's choice -----------------------------------------------------------------------


def mlp_plan(rows: int, width: int) -> Plan:
    """One stage on 8 devices of an MLP of two square layers, with SGD."""

    def loss_fn(params: list[jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ params[0]) @ params[1]) ** 2)

    def step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], loss

    weight = jax.ShapeDtypeStruct((width, width), jnp.float32)
    batch = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    options: dict[str, Any] = {"stages": 1, "microbatches": 1, "mesh": (8,), "cluster": CLUSTER}
    return shardc.jit(step, **options).lower([weight, weight], batch).plan().plan


def splits(plan: Plan) -> tuple[set[int], set[int]]:
    """Dims of the batch, and of the weights, that the forward function's dots take split.

    Of the dots [rows, k] x [k, n]: dim 0 of the left operand, any dim of the right one.
    """
    rows: set[int] = set()
    weights: set[int] = set()
    for op in plan.shardings["stage0_forward"].ops:
        if len(op.operands) == 2 and all(len(o.dims) == 2 for o in op.operands):
            left, right = op.operands
            if left.dims != right.dims:
                rows |= {d for d in (0,) if left.dims[d]}
                weights |= {d for d, axes in enumerate(right.dims) if axes}
    return rows, weights


def is_data_parallel(plan: Plan) -> bool:
    return splits(plan) == ({0}, set())


def is_model_parallel(plan: Plan) -> bool:
    rows, weights = splits(plan)
    return not rows and bool(weights)


# Data parallelism sends the gradients, 2 * width^2 numbers; operator parallelism the activations,
# rows * width (Alpa, section 4.1). One of the two is far larger in each case.
MANY_ROWS, MANY_COLUMNS = (4096, 64), (16, 512)


def test_many_rows_are_split_and_wide_weights_too() -> None:
    assert is_data_parallel(mlp_plan(*MANY_ROWS))
    assert is_model_parallel(mlp_plan(*MANY_COLUMNS))


def test_without_its_objective_the_solver_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The test above does see the objective: with all costs zero it does not hold."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    solve = plan_shardings.solve_once

    def blind(problem: Problem, **options: Any) -> Solution:
        free = dataclasses.replace(
            problem,
            costs=without_costs(problem.costs),
            edge_costs=without_costs(problem.edge_costs),
        )
        return solve(free, **options)

    monkeypatch.setattr(plan_shardings, "solve_once", blind)
    plans = mlp_plan(*MANY_ROWS), mlp_plan(*MANY_COLUMNS)
    assert not (is_data_parallel(plans[0]) and is_model_parallel(plans[1]))


def without_costs(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Zero where a cost is finite; what is impossible stays impossible."""
    return tuple(np.where(np.isfinite(table), 0.0, np.inf) for table in tables)
