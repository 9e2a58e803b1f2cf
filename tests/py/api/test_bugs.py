"""What has no code is a bug in shardc, with the pass, the op and a file; users' own errors stay."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.cli.opt import main as opt
from shardc.errors import BugError
from shardc.importer.pass_list import parse_passes
from shardc.ir.pass_manager import print_passes
from shardc.ir.walk import main_function, ops
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.ask_shardings import AskShardings
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.cse import Cse
from shardc.passes.insert_reshards import InsertReshards
from shardc.passes.keep_forward_values import KeepForwardValues
from shardc.passes.pipeline import PASSES
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.decisions import FunctionSharding, OpSharding
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.stages_spec import StageSpec
from tests.py.table import CLUSTER

ROWS = TensorSharding((("x",), ()))

X = np.ones((8, 4), np.float32)


def step(x: Any) -> Any:
    return jnp.tanh(x @ x.T)


@pytest.fixture(autouse=True)
def _reproducers_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def lowered(**options: Any) -> Any:
    return shardc.jit(step, cluster=CLUSTER, **{"stages": 1, "mesh": (8,), **options}).lower(X)


def at_the_product(self: Any, module: Any) -> None:
    for op in ops(main_function(module)):
        if op.name == "stablehlo.dot_general":
            raise KeyError("made up")


def test_a_pass_that_fails_names_itself_the_op_and_a_file_to_attach(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Cse, "apply", at_the_product)
        with pytest.raises(BugError, match="shardc-cse: KeyError: 'made up'") as caught:
            lowered().plan()
    bug = caught.value
    assert (bug.code, bug.exit_code) == ("SHARDC-999", 4)
    assert re.fullmatch(r"'stablehlo.dot_general' at test_bugs.py:\d+ \(step\)", str(bug.where))
    assert isinstance(bug.__cause__, KeyError)
    assert bug.reproducer is not None
    text = Path(bug.reproducer).read_text()
    passes = re.search(r"RUN: shardc-opt %s --passes=(\S+)", text)
    assert passes is not None
    assert passes[1].endswith(",shardc-cse")
    # Whoever gets the file sees the same.
    assert opt([bug.reproducer, f"--passes={passes[1]}"]) == 0
    monkeypatch.setattr(Cse, "apply", at_the_product)
    assert opt([bug.reproducer, f"--passes={passes[1]}"]) == 4
    assert "SHARDC-999" in capsys.readouterr().err


def fails(*_: Any, **__: Any) -> Any:
    raise IndexError("made up")


def test_every_door_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, call in {
        "shardc.importer.from_jax.describe": lowered,
        "shardc.api.function.constrain_to_placements": lowered,
        "shardc.api.stages.copy_module": lambda: lowered().plan(),
        "shardc.api.planning.find.plan_program": lambda: lowered().plan(),
        "shardc.compiler.lower": lambda: lowered().plan().explain(),
        "shardc.compiler.replay": lambda: lowered().plan().explain(),  # a plan from the cache
        "shardc.api.stages.explain": lambda: lowered().plan().explain(),
        "shardc.api.stages.asked_prices": lambda: lowered().plan().sharding_prices(),
        "shardc.api.stages.compile_as_planned": lambda: lowered().compile(),
        "shardc.runtime.interpreter.Interpreter.__call__": lambda: lowered().compile()(X),
    }.items():
        with monkeypatch.context() as broken:
            broken.setattr(name, fails)
            with pytest.raises(BugError, match=r"a bug in shardc while .*IndexError: made up"):
                call()


@pytest.fixture
def first_shape_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from shardc.planner import attempts

    right, calls = attempts.plan_exactly, iter(range(100))

    def at_first(*args: Any, **options: Any) -> Any:
        return fails() if next(calls) == 0 else right(*args, **options)

    monkeypatch.setattr(attempts, "plan_exactly", at_first)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("first_shape_fails")
def test_a_shape_at_which_shardc_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDC_RERAISE")
    notes = lowered(mesh="auto").plan().plan.notes
    assert any(
        "left out: a bug in shardc while planning: IndexError: made up" in str(n) for n in notes
    )


@pytest.mark.usefixtures("first_shape_fails")
def test_where_tests_run_it_is_an_error() -> None:
    with pytest.raises(BugError, match="made up"):
        lowered(mesh="auto").plan()


def test_where_no_shape_is_left_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDC_RERAISE")
    monkeypatch.setattr("shardc.planner.attempts.plan_exactly", fails)
    with pytest.raises(BugError, match="made up"):
        lowered(mesh="auto", seed=1).plan()


@pytest.mark.parametrize("kind", [KeyError, ValueError, KeyboardInterrupt, SystemExit])
def test_what_users_raise_while_tracing_stays_as_it_is(kind: type[BaseException]) -> None:
    def own(x: Any) -> Any:
        raise kind("mine")

    with pytest.raises(kind, match="mine"):
        shardc.jit(own, cluster=CLUSTER)(X)


def test_what_jax_says_of_the_users_function_stays_as_it_is() -> None:
    with pytest.raises(jax.errors.TracerBoolConversionError):
        shardc.jit(lambda x: x if x.sum() > 0 else -x, cluster=CLUSTER)(X)
    with pytest.raises(TypeError, match=r"dot_general|matmul"):
        shardc.jit(lambda x: x @ x, cluster=CLUSTER)(X)


def test_lists_of_passes_survive_being_printed() -> None:
    passes = (Cse(), SplitMicrobatches(4, (1, 2), (0,)), InsertReshards())
    assert parse_passes(print_passes(passes), PASSES) == passes
    sharded = FunctionSharding((ROWS,), (ROWS,), (OpSharding((ROWS, ROWS), (ROWS,)),))
    of_data = (
        PlanShardings(CLUSTER, seed=3),
        AssignMeshes((Mesh((("x", 2), ("y", 1)), (3, 4)), Mesh((), (0,)))),
        AskShardings((StageSpec(shardings={"params.*": "-,x"}),)),
        ApplyShardings({"stage0_forward": sharded}, CLUSTER),
        KeepForwardValues(values=((0, "12.tanh1"), (1, "14:1#2"))),
    )
    assert parse_passes(print_passes(of_data), PASSES) == of_data
    assert (
        print_passes(parse_passes("canonicalize,shardc-cse", PASSES)) == "canonicalize,shardc-cse"
    )
