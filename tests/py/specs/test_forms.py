"""A module that is not in the form its pass promises is found, with the op that breaks it."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir

from shardc.compiler import prepare
from shardc.ir.attributes import (
    IN_SHARDINGS,
    NUM_MICROBATCHES,
    PHASE,
    SHARDING,
    STAGE,
    VALUE,
    arg_attrs,
    call_target,
    set_arg_attrs,
    str_attr,
)
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import functions, main_function, ops
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import LOCAL_LOWERING, PASSES
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.layout import Mesh
from shardc.specs.form import FormError
from shardc.specs.forms import FORM_AFTER, verify_after
from tests.py.table import CLUSTER

MESHES = (Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3)))
STEPS = (
    SplitMicrobatches(2),
    PlanStages(stages=2),
    OutlineStages(),
    AssignMeshes(MESHES),
    PlanShardings(cluster=CLUSTER),
    *LOCAL_LOWERING,
)


def step(weights, x):
    def loss(weights):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

    value, grads = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value


def module_behind(name: str) -> ir.Module:
    """A training step of two layers, just behind the pass called `name`."""
    args = [jnp.ones((4, 4)), jnp.ones((4, 4))], jnp.ones((8, 4))
    module = parse(jax.jit(step, donate_argnums=0).lower(*args).as_text())
    prepare(module)
    for each in STEPS:
        if name == "shardc-summarize-calls":
            break
        run_passes(module, [each])
        if each.name == name:
            break
    verify_after(name, module.operation)
    return module


def first(module: ir.Module, function: int = 0, op: str = "stablehlo.dot_general") -> ir.Operation:
    return next(o for o in ops(list(functions(module.operation))[function]) if o.name == op)


def rename_value(module: ir.Module) -> None:
    function = list(functions(module.operation))[1]
    attrs = arg_attrs(function)
    set_arg_attrs(function, [{**attrs[0], VALUE: str_attr("v999")}, *attrs[1:]])


def drop_argument_sharding(module: ir.Module) -> None:
    function = next(functions(module.operation))
    attrs = [{k: v for k, v in each.items() if k != SHARDING} for each in arg_attrs(function)]
    set_arg_attrs(function, attrs)


def use_part_after(module: ir.Module) -> None:
    main = main_function(module.operation)
    sums = next(op for op in ops(main) if call_target(op) == "shardc.accumulate")
    sums.results[0].replace_all_uses_with(sums.operands[0])


BROKEN = {
    "a phase before the split": (
        "shardc-summarize-calls",
        lambda m: first(m).attributes.__setitem__(PHASE, str_attr("body")),
        "has shardc.phase already",
    ),
    "two functions to run": (
        "shardc-summarize-calls",
        lambda m: main_function(m.operation).clone(ip=ir.InsertionPoint(m.body)),
        "2 functions run by themselves",
    ),
    "no phase": (
        "shardc-split-microbatches",
        lambda m: first(m).attributes.__delitem__(PHASE),
        "an op has the phase None",
    ),
    "another count": (
        "shardc-split-microbatches",
        lambda m: m.operation.attributes.__setitem__(
            NUM_MICROBATCHES, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3)
        ),
        "is no batch of 3 parts",
    ),
    "a part used after the body": (
        "shardc-split-microbatches",
        use_part_after,
        "an op of the after phase uses a value of body",
    ),
    "a value that nobody gives": ("shardc-outline-stages", rename_value, "nobody gives v999"),
    "no stage": (
        "shardc-outline-stages",
        lambda m: next(functions(m.operation)).attributes.__delitem__(STAGE),
        "a function has no stage",
    ),
    "an op without shardings": (
        "shardc-plan-shardings",
        lambda m: first(m).attributes.__delitem__(IN_SHARDINGS),
        "shardc.in_shardings is missing",
    ),
    "an argument without sharding": (
        "shardc-plan-shardings",
        drop_argument_sharding,
        "an argument or result has no sharding",
    ),
    "a sharding that is left": (
        "shardc-localize",
        lambda m: first(m).attributes.__setitem__(
            SHARDING, ir.Attribute.parse("#sdy.sharding_per_value<[<@stage0, [{}, {}]>]>")
        ),
        "sdy.sharding is left",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_form_is_found(case: str) -> None:
    name, damage, message = BROKEN[case]
    module = module_behind(name)
    with module.context, ir.Location.unknown():
        damage(module)
        with pytest.raises(FormError, match=message) as raised:
            verify_after(name, module.operation)
    assert raised.value.code == "SHARDC-999"


def test_every_form_belongs_to_a_pass() -> None:
    assert set(FORM_AFTER) <= set(PASSES)
