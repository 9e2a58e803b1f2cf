"""Outlined stage functions, run as a pipeline, compute what the step computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc.analysis.program.flops import heavy_flops
from shardc.backend.extract import function_values
from shardc.ir.attributes import BATCH_DIM, KIND, arg_attrs, get_str
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import body, functions, main_function, ops, symbol
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_stages import PlanStages
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.function_kind import FunctionKind
from tests.py import programs
from tests.py.pipeline_reference import run_pipeline, stage_functions


def flat(tree):
    """Leaves on the host, random keys as their bits."""
    return [
        np.asarray(jax.random.key_data(leaf))
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else np.asarray(leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def outlined(step, args, donate, microbatches, stages, in_flight=()):
    """The outlined module, and the arguments in the types that its functions take."""
    module = parse(jax.jit(step, donate_argnums=donate).lower(*args).as_text())
    run_passes(module, [*NORMALIZE, SplitMicrobatches(microbatches)])
    main = main_function(module.operation)
    with module.context:
        cut = [BATCH_DIM in attrs for attrs in arg_attrs(main)]
        shapes = [tuple(ir.RankedTensorType(v.type).shape) for v in body(main).arguments]
    assert any(cut)
    run_passes(module, [PlanStages(stages=stages), PlanResidency(in_flight), OutlineStages()])
    leaves = flat(args)
    return module, [leaf.reshape(shape) for leaf, shape in zip(leaves, shapes, strict=True)]


def relative_error(ours, reference):
    reference = np.asarray(reference, np.float64)
    ours = np.asarray(ours, np.float64).reshape(reference.shape)
    return np.max(np.abs(ours - reference), initial=0) / max(np.max(np.abs(reference)), 1e-30)


def check(name, microbatches, stages, in_flight=(), limit=1e-10):
    """Compares one step in float64 with `jax.jit`."""
    with jax.enable_x64(True):
        program = programs.build(name, "float64")
        args = jax.tree.map(lambda leaf: leaf, program.args)
        reference = flat(jax.jit(program.step)(*args))
        donate = program.donate_argnums
        module, inputs = outlined(program.step, args, donate, microbatches, stages, in_flight)
        results = run_pipeline(module, inputs, microbatches)
        assert len(results) == len(reference)
        for result, expected in zip(results, reference, strict=True):
            assert relative_error(result, expected) < limit


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_an_mlp_computes_what_the_step_computes(stages):
    check("mlp", 2, stages)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [(1,), (9,), (2, 1), (0, 3)])
def test_what_is_made_again_is_what_was_kept(in_flight):
    check("mlp", 2, len(in_flight), in_flight)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "in_flight"), [("gpt_dropout", (2, 1)), ("gpt_mask", (9, 9))])
def test_training_steps_that_make_values_again_compute_what_they_compute(name, in_flight):
    check(name, 2, len(in_flight), in_flight)


def stash_bytes(in_flight):
    """Of an MLP: what the forward functions leave to the backward functions of their stages."""
    program = programs.build("mlp")
    module, _ = outlined(program.step, program.args, program.donate_argnums, 2, 2, in_flight)
    values = function_values(module)
    made = {
        (each.stage, spec.value)
        for each in values
        if each.kind is FunctionKind.FORWARD
        for spec in each.results
        if spec.per_microbatch
    }
    return sum(
        spec.num_bytes
        for each in values
        if each.kind is FunctionKind.BACKWARD
        for spec in each.args
        if (each.stage, spec.value) in made
    )


def test_less_is_kept_the_more_microbatches_are_in_flight():
    kept, for_one, for_many = map(stash_bytes, [(0, 0), (1, 1), (99, 99)])
    assert kept > for_one >= for_many


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "microbatches", "stages"),
    [
        ("gpt_clip", 2, 4),
        ("gpt_mask", 4, 2),
        ("gpt_dropout", 2, 2),
        ("conv", 2, 2),
    ],
)
def test_training_steps_compute_what_they_compute_in_one_piece(name, microbatches, stages):
    check(name, microbatches, stages)


def sizes(module):
    with module.context:
        return {symbol(f): len(ops(f)) for f in functions(module.operation)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt_clip"])
def test_functions_do_not_grow_with_the_number_of_microbatches(name):
    program = programs.build(name)
    found = [
        sizes(outlined(program.step, program.args, program.donate_argnums, count, 2)[0])
        for count in (2, 8)
    ]
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_no_matrix_product_is_computed_twice(stages):
    program = programs.build("gpt")
    module = parse(jax.jit(program.step, donate_argnums=0).lower(*program.args).as_text())
    run_passes(module, NORMALIZE)
    whole = sum(heavy_flops(op) for op in ops(main_function(module.operation)))
    module, _ = outlined(program.step, program.args, (0,), 4, stages)
    per_stage = [0] * stages
    with module.context:
        for function in functions(module.operation):
            repeats = 4 if get_str(function, KIND) in ("forward", "backward") else 1
            stage = int(symbol(function).removeprefix("stage").split("_")[0])
            per_stage[stage] += repeats * sum(heavy_flops(op) for op in ops(function))
    assert sum(per_stage) == whole
    assert max(per_stage) <= 1.5 * whole / stages


@pytest.mark.slow
def test_only_neighbours_exchange_one_activation_and_one_cotangent():
    """What the four blocks of a GPT share is the residual stream, and the tied embedding."""
    program = programs.build("gpt_sgd")
    module, _ = outlined(program.step, program.args, (0,), 2, 4)
    table = stage_functions(module)
    made = {name: f for f in table for name, many in f.gives if many}
    crossing = {
        (made[name].kind, made[name].stage, f.stage)
        for f in table
        for name, many in f.takes
        if many and made[name].stage != f.stage
    }
    forward = {("forward", s, s + 1) for s in range(3)}
    backward = {("backward", s + 1, s) for s in range(3)}
    assert crossing == forward | backward


@pytest.mark.slow
def test_rounds_of_an_update_hand_on_no_more_than_the_gradients():
    """The norm of all gradients takes rounds; neither moments nor learning rates spread over
    weights wait for it beside them."""
    program = programs.build("gpt_clip", "float32")
    module, _ = outlined(program.step, program.args, program.donate_argnums, 2, 2)
    updates = [f for f in stage_functions(module) if f.kind == "update"]
    made = {value: f.stage for f in updates for value, _ in f.gives}
    for stage in range(2):
        sizes = {}
        for function in updates:
            for (value, _), (shape, _) in zip(function.takes, function.types, strict=True):
                if function.stage == stage:
                    sizes[value] = int(np.prod(shape))
        gradients = sum(n for value, n in sizes.items() if value.startswith("acc"))
        waiting = sum(n for value, n in sizes.items() if made.get(value) == stage and n > 1)
        assert gradients > 0
        assert waiting <= gradients


def test_a_sum_of_bfloat16_is_accumulated_in_float32():
    def step(weight, x):
        loss, gradient = jax.value_and_grad(lambda w: jnp.sum((x @ w) ** 2))(weight)
        return weight - gradient, loss

    args = jnp.ones((4, 4), jnp.bfloat16), jnp.ones((8, 4), jnp.bfloat16)
    module, _ = outlined(step, args, (0,), 2, 1)
    [backward] = [f for f in stage_functions(module) if f.kind == "backward"]
    kinds = {
        name: dtype for (name, _), (_, dtype) in zip(backward.takes, backward.types, strict=True)
    }
    assert [dtype for name, dtype in kinds.items() if name.startswith("acc")] == ["float32"]
    with module.context:
        types = str(module.operation.attributes["shardc.result_types"])
    assert types == "[tensor<4x4xbf16>, tensor<bf16>]"


def test_rows_that_are_put_together_stay_with_the_stage_that_makes_them():
    """The last stage marks rows, and the first one picks those of its own by the marks: what
    crosses is a value, since an accumulator may hold partial sums that nobody else can read."""

    def step(weights, x, y):
        def loss(weights):
            h = jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1])
            marked = (y < 3)[:, None]
            picked = jnp.where(marked, h[::-1], 0)
            h = h * jnp.where(marked, 1.0, 2.0)
            for weight in weights[2:]:
                h = jnp.tanh(h @ weight)
            return jnp.mean((h - x) ** 2), picked

        (value, picked), gradient = jax.value_and_grad(loss, has_aux=True)(weights)
        return jax.tree.map(jnp.subtract, weights, gradient), value, picked

    args = [jnp.ones((8, 8))] * 5, jnp.ones((16, 8)), jnp.arange(16)
    module, _ = outlined(step, args, (0,), 2, 2)
    table = stage_functions(module)
    homes = {name: f.stage for f in table for name, _ in f.gives if name.startswith("acc")}
    taken = [f.stage == homes[name] for f in table for name, _ in f.takes if name in homes]
    assert taken and all(taken)
