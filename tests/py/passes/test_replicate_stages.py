"""Stages with two copies compute what one copy of each computed."""

from collections import Counter

import jax
import numpy as np
import pytest

from shardc.analysis.program.flops import heavy_flops
from shardc.ir.attributes import STAGE, function_kind, get_int
from shardc.ir.pass_manager import Pass, run_passes
from shardc.ir.walk import functions, ops
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.split_backward import SplitBackward
from tests.py import programs
from tests.py.passes.test_outline_stages import flat, outlined, relative_error
from tests.py.pipeline_reference import run_pipeline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "microbatches", "stages", "before"),
    [("mlp", 4, 3, []), ("mlp", 2, 2, [SplitBackward()])],
)
def test_results_stay_the_same(
    name: str, microbatches: int, stages: int, before: list[Pass]
) -> None:
    with jax.enable_x64(True):
        program = programs.build(name, "float64")
        expected = flat(jax.jit(program.step)(*program.args))
        module, inputs = outlined(
            program.step, program.args, program.donate_argnums, microbatches, stages
        )
        run_passes(module, [*before, ReplicateStages()])
        results = run_pipeline(module, inputs, microbatches)
    for ours, theirs in zip(results, expected, strict=True):
        assert relative_error(np.asarray(ours), theirs) < 1e-10


@pytest.mark.slow
def test_a_copy_has_the_products_of_a_microbatch_and_none_of_the_update() -> None:
    program = programs.build("conv")
    module, _ = outlined(program.step, program.args, program.donate_argnums, 4, 2)
    run_passes(module, [ReplicateStages()])
    with module.context:
        found = [(get_int(f, STAGE) or 0, function_kind(f), f) for f in functions(module.operation)]
        work: Counter[tuple[int, object]] = Counter()
        for stage, kind, function in found:
            work[stage, kind] += sum(map(heavy_flops, ops(function)))
        assert all(work[s, kind] == work[s + 2, kind] for s, kind, _ in found if s < 2)
        updates = [f for s, kind, f in found if s >= 2 and kind == "update"]
        assert len(updates) == 2
        assert {op.name for f in updates for op in ops(f)} == {"stablehlo.reshape"}
