"""A fresh plan is lowered from the planner's module, a saved one replayed: to the same programs."""

from pathlib import Path
from typing import Any

import jax
import pytest

import shardc
from shardc import compiler
from shardc.api.stages import Planned
from tests.py.programs import build
from tests.py.table import CLUSTER

PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "one stage": ("mlp", {"stages": 1, "microbatches": 2, "mesh": (2, 2)}),
    "two stages": ("conv", {"stages": 2, "microbatches": 2, "mesh": (2,)}),
    "a backward in two": ("moe", {"stages": 2, "microbatches": 4, "schedule": "zb-h2"}),
    "two copies": ("mlp", {"stages": 2, "microbatches": 2, "schedule": "bitpipe"}),
    "as the planner likes": ("conv", {}),
    "partitioned by XLA": ("mlp", {"stages": 2, "microbatches": 2, "lowering": "xla"}),
}


def planned(name: str, **options: Any) -> Planned:
    program = build(name)
    step = shardc.jit(
        program.step,
        donate_argnums=program.donate_argnums,
        cluster=CLUSTER,
        **({"mesh": (1,)} if options.get("schedule") else {}),
        **options,
    )
    return step.lower(*program.args).plan()


@pytest.fixture(autouse=True)
def no_plan_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), PLANS.values(), ids=PLANS)
def test_fresh_and_saved_plans_give_the_same_programs(name: str, options: Any) -> None:
    fresh = planned(name, **options)
    kept = {key: value for key, value in options.items() if key == "lowering"}
    saved = planned(name, plan=fresh.plan, **kept)
    assert saved.executable == fresh.executable


def test_only_a_plan_that_was_not_made_here_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = []
    replay = compiler.replay

    def counting(*args: Any) -> Any:
        replayed.append(1)
        return replay(*args)

    monkeypatch.setattr(compiler, "replay", counting)
    fresh = planned("mlp", stages=2, microbatches=2, mesh=(2,))
    assert fresh.executable and not replayed
    again = planned("mlp", stages=2, microbatches=2, mesh=(2,))
    assert again.plan.from_cache and again.executable and len(replayed) == 1
    assert again.executable == fresh.executable
    assert jax.tree.structure(again.args_info) == jax.tree.structure(fresh.args_info)
