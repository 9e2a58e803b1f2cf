"""A backward cut in two computes what it computed, and hardly anything twice."""

import jax
import numpy as np
import pytest

from shardc import compiler, cutting
from shardc.analysis.program.flops import heavy_flops, op_cost
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.ir.attributes import STAGE, function_kind, get_int
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import functions, ops
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.plan.function_kind import FunctionKind
from shardc.planner.layer_samples import even_loop_cuts
from tests.py import programs
from tests.py.passes.test_outline_stages import flat, outlined, relative_error
from tests.py.pipeline_reference import run_pipeline
from tests.py.scanned_gpt import scanned_gpt


def flops(module, count=lambda op: op_cost(op).flops):
    """(stage, kind) -> FLOPs of one call."""
    with module.context:
        return {
            (get_int(f, STAGE), function_kind(f)): sum(map(count, ops(f)))
            for f in functions(module.operation)
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stages"), [("gpt", 4), ("moe", 4), ("conv", 4), ("gpt_checkpoint", 2)]
)
def test_the_parts_together_do_what_the_whole_did(name, stages):
    program = programs.build(name)
    module, _ = outlined(program.step, program.args, program.donate_argnums, 4, stages)
    whole = flops(module)
    run_passes(module, [SplitBackward()])
    parts = flops(module)
    for stage in range(stages):
        both = sum(
            parts.get((stage, kind), 0) for kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT)
        )
        assert whole[stage, FunctionKind.BACKWARD] <= both
        assert both <= 1.01 * whole[stage, FunctionKind.BACKWARD]
    assert (0, FunctionKind.BACKWARD) not in parts  # nothing in front waits for it


@pytest.mark.slow
def test_products_of_a_middle_stage_fall_apart_as_in_the_zero_bubble_paper():
    """W is 6 / (6 + s / h) of half of X: attention's own products have no weights."""
    program = programs.build("gpt_sgd")
    module, _ = outlined(program.step, program.args, program.donate_argnums, 4, 4)
    whole = flops(module, heavy_flops)
    run_passes(module, [SplitBackward()])
    s, h = programs.SIZES.length, programs.SIZES.width
    for stage in (1, 2):
        half = whole[stage, FunctionKind.BACKWARD] / 2
        weight = flops(module, heavy_flops)[stage, FunctionKind.WEIGHT]
        assert weight / half == pytest.approx(6 / (6 + s / h), rel=0.02)


@pytest.mark.slow
def test_the_loop_of_a_scan_falls_apart_and_no_product_is_computed_twice():
    program = scanned_gpt(6, batch=8)
    module = parse(jax.jit(program.step, donate_argnums=0).lower(*program.args).as_text())
    compiler.prepare(module)
    split = cutting.split(module, 2, None, (), even_loop_cuts(module, 3))
    with split.context:
        positions = layer_positions(split.operation, exactly=3)
    outlined = cutting.outline(split, positions[1:])
    whole = flops(outlined, heavy_flops)
    run_passes(outlined, [SplitBackwardLoops(), SplitBackward()])
    parts = flops(outlined, heavy_flops)
    for stage in (1, 2):
        both = parts[stage, FunctionKind.BACKWARD], parts[stage, FunctionKind.WEIGHT]
        assert sum(both) == whole[stage, FunctionKind.BACKWARD]
        assert both[1] > 0.3 * sum(both)  # the rest makes forward values again, as checkpoint asks
    assert parts[0, FunctionKind.WEIGHT] == whole[0, FunctionKind.BACKWARD]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "microbatches", "stages"), [("gpt_clip", 1, 2), ("conv", 2, 4), ("mlp", 4, 3)]
)
def test_results_stay_the_same(name, microbatches, stages):
    with jax.enable_x64(True):
        program = programs.build(name, "float64")
        expected = flat(jax.jit(program.step)(*program.args))
        module, inputs = outlined(
            program.step, program.args, program.donate_argnums, microbatches, stages
        )
        run_passes(module, [SplitBackward()])
        results = run_pipeline(module, inputs, microbatches)
    for ours, theirs in zip(results, expected, strict=True):
        assert relative_error(np.asarray(ours), theirs) < 1e-10
