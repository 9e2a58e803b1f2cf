"""Passes are checked one by one: right ones agree, a wrong one is named, and nothing is hidden."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.check.child import Child, run_here
from shardc.check.each_pass import EachPass, PassCheck
from shardc.check.values import random_values
from shardc.cli.opt import main
from shardc.ir.context import parse
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, ops
from shardc.passes.cse import Cse
from shardc.passes.pipeline import NORMALIZE, PASSES
from shardc.passes.widen_floats import WidenFloats
from tests.py.fuzz.every_pass import check_every_pass
from tests.py.fuzz.generate import random_source
from tests.py.fuzz.kinds import KINDS, step_of


@dataclass(frozen=True)
class NarrowIota(Pass):
    """Wrong: takes every iota to fit into eight bits."""

    name = "shardc-test-narrow-iota"

    def apply(self, module: ir.Operation) -> None:
        for op in ops(main_function(module)):
            if op.name == "stablehlo.iota":
                shape = ir.RankedTensorType(op.results[0].type).shape
                eight = ir.RankedTensorType.get(shape, ir.IntegerType.get_unsigned(8))
                with ir.InsertionPoint.after(op), op.location:
                    narrow = stablehlo.ConvertOp(eight, op.results[0])
                    back = stablehlo.ConvertOp(op.results[0].type, narrow.result)
                op.results[0].replace_all_uses_except(back.result, narrow.operation)


@dataclass(frozen=True)
class ZeroAtTheEnd(Pass):
    """Wrong only where an argument is the least number of its type."""

    name = "shardc-test-zero-at-the-end"

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        argument = body(main).arguments[0]
        first = ops(main)[0]
        with ir.InsertionPoint(first), first.location:
            least = ir.DenseElementsAttr.get_splat(
                argument.type,
                ir.IntegerAttr.get(ir.RankedTensorType(argument.type).element_type, -128),
            )
            equal = stablehlo.compare(
                argument,
                stablehlo.constant(least),
                stablehlo.ComparisonDirectionAttr.get("EQ"),
            )
            zero = stablehlo.subtract(argument, argument)
            chosen = stablehlo.select(equal, zero, argument)
        own = [each.owner.operation for each in (zero, equal, chosen)]
        argument.replace_all_uses_except(chosen, own)


def module_of(function: Any, *args: Any) -> ir.Module:
    with jax.enable_x64(True):
        return parse(jax.jit(function, keep_unused=True).lower(*args).as_text())


def checks(module: ir.Module, *passes: Pass) -> list[PassCheck]:
    with jax.enable_x64(True):
        return list(EachPass(run_here).run(module, passes))


def counted(rows: int) -> ir.Module:
    return module_of(lambda x: x[jnp.arange(rows)] * 2, np.ones((rows, 2)))


def test_a_pass_that_changes_numbers_is_named_with_the_place() -> None:
    (check,) = checks(counted(300), NarrowIota())
    assert check.outcome == "differs"
    assert "@main, result 0" in check.differences[0]
    assert str(check).startswith("shardc-test-narrow-iota: DIFFERS on 2 inputs")


def test_the_same_pass_on_few_rows_is_right() -> None:
    (check,) = checks(counted(200), NarrowIota())
    assert check.outcome == "agrees"
    assert check.compared == 2


def test_the_ends_of_a_type_are_among_the_inputs() -> None:
    module = module_of(lambda x: x.astype(jnp.int32) + 1, np.ones(200, np.int8))
    (check,) = checks(module, ZeroAtTheEnd())
    assert check.outcome == "differs"


def test_a_pass_that_does_nothing_is_not_run_again() -> None:
    module = counted(4)
    checks(module, *NORMALIZE)
    assert {check.outcome for check in checks(module, Cse())} == {"unchanged"}


def test_a_pass_that_widens_may_change_the_types_of_results() -> None:
    module = module_of(lambda i: jnp.sin(i.astype(jnp.float32)), np.arange(4, dtype=np.int32))
    (check,) = checks(module, WidenFloats())
    assert check.outcome == "agrees" and not check.differences


def test_what_the_interpreter_lacks_is_told() -> None:
    def bits(x: Any) -> Any:
        first = jax.random.bits(jax.random.key(0, impl="rbg"), (4,)) + 0
        return x + first, x + first

    found = checks(module_of(bits, np.ones(4, np.uint32)), *NORMALIZE)
    agreeing = [check for check in found if check.outcome == "agrees"]
    assert agreeing
    assert all(check.lacking == ("stablehlo.rng_bit_generator",) for check in agreeing)
    assert "by XLA: the interpreter lacks stablehlo.rng_bit_generator" in str(agreeing[0])


def test_what_nothing_can_run_is_told() -> None:
    def loud(x: Any) -> Any:
        jax.debug.callback(lambda total: None, x.sum())
        return x * 2 + x * 2

    found = checks(module_of(loud, np.ones(4)), *NORMALIZE)
    skipped = [check for check in found if check.outcome == "not compared"]
    assert skipped
    assert "not compared" in str(skipped[0])


@pytest.mark.slow
def test_a_child_that_is_lost_is_replaced() -> None:
    module = module_of(lambda x: x * 2, np.ones(4))
    with module.context:
        inputs = random_values(module.operation, "ordinary", 0)
    with Child() as child:
        assert child.evaluate(module, inputs).results["main"]
        assert child._process is not None
        child._process.kill()
        again = child.evaluate(module, inputs)
    np.testing.assert_array_equal(again.results["main"][0], inputs["main"][0] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_keeps_what_a_step_computes(kind: str) -> None:
    step = None
    with jax.enable_x64(True):
        step = step_of(kind, 1)
        module = parse(
            jax.jit(step.function, donate_argnums=0, keep_unused=True).lower(*step.args).as_text()
        )
        first = len(jax.tree.leaves(step.args[0]))
        found = list(
            check_every_pass(
                module, run_here, batch=((first, first + 1), (0, 0)), inputs=[("ordinary", 0)]
            )
        )
    assert [str(check) for check in found if check.differences or check.not_compared] == []
    assert sum(check.compared for check in found) >= 10
    assert set(PASSES) == {check.name for check in found}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_every_pass_keeps_what_random_programs_compute(first: int) -> None:
    """100 programs in all, small ones; `tools/check_passes.py` takes thousands of larger ones."""
    wrong: list[str] = []
    for seed in range(first, first + 10):
        with jax.enable_x64(True):
            source = random_source(Random(seed), 2)
            lowered = jax.jit(source.function(), keep_unused=True).lower(*source.values())
            inputs = [(("ordinary", "extremes")[seed % 2], seed)]
            found = check_every_pass(parse(lowered.as_text()), run_here, seed=seed, inputs=inputs)
            wrong += [f"{source}\n{each}" for each in found if each.differences]
    assert wrong == []


OPT = """func.func @main(%a: tensor<300x2xf32>) -> tensor<300x2xf32> {
  %i = stablehlo.iota dim = 0 : tensor<300xi32>
  %dead = stablehlo.add %i, %i : tensor<300xi32>
  %r = stablehlo.reshape %i : (tensor<300xi32>) -> tensor<300x1xi32>
  %0 = "stablehlo.gather"(%a, %r) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 2>} : (tensor<300x2xf32>, tensor<300x1xi32>) -> tensor<300x2xf32>
  return %0 : tensor<300x2xf32>
}
"""


def run_opt(tmp_path: Path, *options: str) -> int:
    file = tmp_path / "in.mlir"
    file.write_text(OPT)
    return main([str(file), "--verify-each", *options])


@pytest.mark.slow
def test_verify_each_says_what_became_of_each_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_opt(tmp_path, "--passes=shardc-legalize-chlo,shardc-canonicalize") == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "shardc-legalize-chlo: changes nothing",
        "shardc-canonicalize: agrees on 2 inputs",
    ]
    assert "func.func @main" in told.out


@pytest.mark.slow
def test_verify_each_stops_at_a_wrong_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PASSES, NarrowIota.name, NarrowIota)
    assert run_opt(tmp_path, f"--passes={NarrowIota.name}") == 4
    told = capsys.readouterr()
    assert "error[SHARDC-901]: shardc-test-narrow-iota changed what the module computes" in told.err
    assert told.out == ""
