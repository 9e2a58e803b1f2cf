"""The check accepts what a plan computes, and no program that was tampered with."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import msgspec
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc import compiler
from shardc.api.request import plan_options
from shardc.backend.stage_text import program_text
from shardc.check import verify
from shardc.cluster import Cluster
from shardc.importer.from_jax import import_function
from shardc.ir.context import make_context
from shardc.ir.copy import copy_module
from shardc.ir.walk import functions, terminator, walk
from shardc.plan.executable import Executable, StageProgram
from shardc.planner.plan_program import plan_program
from tests.py.programs import build

STEPS = 2


class Case(NamedTuple):
    """A planned program, in its own precision and in float64, and what one device computes."""

    own: Executable
    wide: Executable
    inputs: list[np.ndarray]
    names: list[str]
    exact: tuple[dict[str, np.ndarray], ...]

    def verdict(self, change: Any = lambda executable: executable) -> verify.Verdict:
        devices = jax.devices()
        own = verify.outputs(change(self.own), self.inputs, self.names, STEPS, devices)
        wide_inputs = [verify.widen_array(value) for value in self.inputs]
        wide = verify.outputs(change(self.wide), wide_inputs, self.names, STEPS, devices)
        return verify.judge(*self.exact, own.values, wide.values)


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def case() -> Case:
    with jax.enable_x64(True):
        program = build("mlp", batch=512)
        imported = import_function(program.step, program.args, donate_argnums=0)
        prepared = copy_module(imported.module)
        compiler.prepare(prepared)
        options = plan_options(stages=2, microbatches=2, mesh=(4,), schedule="1f1b")
        plan = plan_program(prepared, Cluster.load("cpu8"), options)
        sharded = compiler.replay(prepared, plan)
        own, wide = (compiler.lower(module, plan) for module in (sharded, verify.widened(sharded)))
        inputs = [np.asarray(leaf) for leaf in jax.tree.leaves(program.args)]
        exact = verify.references(imported, inputs, verify.state_of(own), STEPS, jax.devices()[0])
        return Case(own, wide, inputs, verify.result_names(imported), exact)


@pytest.mark.slow
def test_the_plan_computes_what_one_device_computes(case: Case) -> None:
    verdict = case.verdict()
    assert verdict.passed, str(verdict)
    assert verdict.wide.max_relative_error < 1e-13
    assert all(leaf.rule == "a" for leaf in verdict.wide.leaves)
    assert verdict.to_dict()["outputs_compared"] == 11


def with_text(executable: Executable, name: str, change: Any) -> Executable:
    """The executable with one program's module edited by `change(main function)`."""

    def edited(program: StageProgram) -> StageProgram:
        if program.name != name:
            return program
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(program.module)
            (main,) = functions(module.operation)
            change(main)
            module.operation.verify()
            return msgspec.structs.replace(program, module=str(module).encode())

    return msgspec.structs.replace(executable, programs=tuple(map(edited, executable.programs)))


def names(executable: Executable, kind: str, stage: int) -> str:
    return next(p.name for p in executable.programs if p.kind == kind and p.stage == stage)


def remove_reduce_scatter(main: ir.Operation) -> None:
    """Every device keeps a part of its own partial sum, and adds nothing."""
    op = next(op for op in walk(main) if op.name == "stablehlo.reduce_scatter")
    shape = ir.RankedTensorType(op.results[0].type).shape
    with ir.InsertionPoint(op):
        part = stablehlo.SliceOp(
            op.operands[0], [0] * len(shape), list(shape), [1] * len(shape)
        ).result
    op.results[0].replace_all_uses_with(part)
    op.erase()


@pytest.mark.slow
def test_a_missing_collective_fails_the_check(case: Case) -> None:
    name = next(p.name for p in case.own.programs if "stablehlo.reduce_scatter" in program_text(p))
    verdict = case.verdict(lambda e: with_text(e, name, remove_reduce_scatter))
    assert not verdict.own.passed
    assert not verdict.wide.passed


def double_first_result(main: ir.Operation) -> None:
    end = terminator(main)
    with ir.InsertionPoint(end):
        end.operands[0] = stablehlo.add(end.operands[0], end.operands[0])


@pytest.mark.slow
def test_a_doubled_output_fails_the_check(case: Case) -> None:
    name = names(case.own, "update", 0)
    verdict = case.verdict(lambda e: with_text(e, name, double_first_result))
    assert not verdict.own.passed
    assert not verdict.wide.passed
    assert any("own precision" in line for line in verdict.to_dict()["failures"])


def skip_a_microbatch(executable: Executable) -> Executable:
    """Drops microbatch 1 from the schedule of every stage."""
    actions = tuple(
        tuple(action for action in stage if not action.endswith(("F1", "B1")))
        for stage in executable.actions
    )
    assert actions != executable.actions
    return msgspec.structs.replace(executable, actions=actions)


@pytest.mark.slow
def test_a_skipped_microbatch_fails_the_check(case: Case) -> None:
    verdict = case.verdict(skip_a_microbatch)
    assert not verdict.own.passed
    assert not verdict.wide.passed


@pytest.mark.slow
def test_moved_inputs_differ_by_roundings_only() -> None:
    values = [np.linspace(-1, 1, 101), np.zeros(3, np.float32), np.arange(4)]
    first, zeros, whole = verify.moved(values)
    assert 20 < np.count_nonzero(first != values[0]) < 80
    np.testing.assert_allclose(first, values[0], rtol=1e-15)
    assert not zeros.any() and whole is values[2]
