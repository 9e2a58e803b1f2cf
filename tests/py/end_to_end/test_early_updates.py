"""Updates in their place in the lanes: the same numbers, as simulated, and steps that overlap."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import shardc
from shardc.api.compiled import Compiled
from shardc.errors import RequestWarning
from shardc.plan.program_graph import executable_graph
from shardc.runtime.interpreter import Interpreter
from shardc.schedule.check import run_order
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import BACKWARD, UPDATE, Task
from tests.py.programs import Program, build, leaves
from tests.py.table import CLUSTER

STEPS = 3
# With whether an update is in front of an action of another stage: not where all lanes end at once.
CELLS = [
    ("1f1b", "mlp", 4, 4, True),
    ("zb-h2", "mlp", 4, 4, True),
    ("interleaved-1f1b", "mlp", 2, 2, False),  # a lane has the updates of two stages
    ("chimera", "mlp", 4, 4, False),  # second copies send their sums to the first ones
    pytest.param("1f1b", "gpt", 2, 4, False, marks=pytest.mark.slow),  # stages share adamw's count
]


def compiled(program: Program, schedule: str, p: int, m: int) -> Compiled:
    step = shardc.jit(
        program.step,
        donate_argnums=program.donate_argnums,
        cluster=CLUSTER,
        mesh=(1,),
        stages=p,
        microbatches=m,
        schedule=schedule,
        time_limit_s=10,
        early_updates=True,
    )
    return step.lower(*program.args).compile()


def with_late_updates(step: Compiled) -> Interpreter:
    """The same programs, with updates behind all other actions."""
    return Interpreter(msgspec.structs.replace(step.executable, early_updates=False), step.programs)


def ran(interpreter: Interpreter) -> list[str]:
    """The actions in order of dispatch; some run several programs."""
    return list(dict.fromkeys(action for action, _ in interpreter.last_trace))


@pytest.mark.parametrize(("schedule", "name", "p", "m", "is_early"), CELLS)
def test_numbers_equal_jax_jit_in_the_simulated_order(
    schedule: str, name: str, p: int, m: int, is_early: bool
) -> None:
    with jax.enable_x64(True):
        program = build(name, "float64")
        step = compiled(program, schedule, p, m)
        late = with_late_updates(step)
        state, other, wanted = (program.args[0] for _ in range(3))
        for _ in range(STEPS):
            given = state
            state, loss = step(given, *program.args[1:])
            flat = late(jax.tree.leaves((other, *program.args[1:])))
            other, _ = jax.tree.unflatten(step.out_tree, flat)
            wanted, wanted_loss = jax.jit(program.step)(wanted, *program.args[1:])
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))
        found, expected = leaves((state, loss)), leaves((wanted, wanted_loss))
    for key, value in leaves(other).items():
        np.testing.assert_array_equal(leaves(state)[key], value, err_msg=key)
    for key, value in expected.items():
        limit = 1e-9 * np.max(np.abs(value), initial=1e-30)
        np.testing.assert_allclose(found[key], value, rtol=0, atol=limit, err_msg=key)

    lanes, graph = executable_graph(step.executable)
    order = ran(step.interpreter)
    assert order == [text for task in run_order(lanes, graph) if (text := str(task)) in order]
    simulated = simulate(lanes, graph, lambda task: 1).timeline
    for group in range(p):
        of_group = [str(each.action) for each in simulated if each.device == group]
        assert [a for a in order if a in of_group] == [a for a in of_group if a in order]
    count = sum(action[1] == UPDATE for action in order)
    behind = [action[1] for action in order[-count:]]
    assert (behind != [UPDATE] * count) == is_early
    assert [action[1] for action in ran(late)[-count:]] == [UPDATE] * count
    assert sorted(ran(late)) == sorted(order)


def with_norm(program: Program) -> Program:
    """The same step, with what it takes off the parameters scaled to a global norm."""

    def step(params: Any, batch: Any) -> tuple[Any, jax.Array]:
        new, loss = program.step(params, batch)
        moved = jax.tree.map(jnp.subtract, params, new)
        scale = jnp.minimum(1.0, 0.01 / optax.tree.norm(moved))
        return jax.tree.map(lambda p, m: p - scale * m, params, moved), loss

    return program._replace(step=step)


def test_a_global_norm_holds_every_update_until_all_gradients_are_there() -> None:
    program = with_norm(build("mlp"))
    with pytest.warns(RequestWarning, match="no update can run early, because each needs a value"):
        step = compiled(program, "1f1b", 4, 4)
    state, batch = jax.tree.map(jnp.array, program.args)
    found, expected = leaves(step(state, batch)), leaves(jax.jit(program.step)(*program.args))
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
    order = ran(step.interpreter)
    consuming = [
        order.index(str(Task(each.stage, UPDATE, each.round)))
        for each in step.executable.programs
        if each.consumes_arguments
    ]
    backwards = [i for i, action in enumerate(order) if action[1] == BACKWARD]
    assert len(consuming) == 4 and min(consuming) > max(backwards)
    assert order.index("3U") < max(backwards)  # its part of the norm

    def fail(*values: jax.Array) -> Any:
        if sum(action == "0B2" for action, _ in failing.last_trace):
            raise RuntimeError("out of memory")
        return backward.call(*values)

    (backward,) = (each for each in step.programs if each.program.name == "stage0_backward")
    others = [each for each in step.programs if each is not backward]
    failing = Interpreter(step.executable, [*others, dataclasses.replace(backward, call=fail)])
    given = jax.tree.leaves(jax.tree.map(jnp.array, program.args))
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        failing(given)
    assert "3U" in ran(failing) and not hasattr(caught.value, "__notes__")
    assert not any(leaf.is_deleted() for leaf in given)


def test_nothing_is_held_where_stages_share_no_more_than_a_count() -> None:
    program = build("mlp")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RequestWarning)
        compiled(program, "1f1b", 2, 4)


@pytest.mark.parametrize("is_early", [False, True])
def test_a_step_begins_before_another_stage_has_updated_for_the_last_one(is_early: bool) -> None:
    """Two calls return, and stage 0 has run a forward of the second step, while stage 1 still
    waits to update for the first."""
    program = build("mlp")
    step = compiled(program, "1f1b", 2, 4)
    held: list[jax.Array] = []
    forward: list[jax.Array] = []
    spin = jax.jit(lambda x: jax.lax.fori_loop(0, 50_000, lambda _, y: jnp.tanh(y @ y), x))
    add = jax.jit(lambda weights, other: weights + 0 * other[0, 0])

    def late(call: Any) -> Any:
        def run(weights: jax.Array, *others: jax.Array) -> Any:
            held.append(add(weights, spin(start)))
            return call(jnp.copy(held[-1]), *others)

        return run

    def seen(call: Any) -> Any:
        def run(*values: jax.Array) -> Any:
            results = call(*values)
            forward.append(jnp.copy(results[0]))
            return results

        return run

    wraps = {"stage1_update_0": late, "stage0_forward": seen}
    programs = [
        dataclasses.replace(each, call=wraps.get(each.program.name, lambda call: call)(each.call))
        for each in step.programs
    ]
    executable = msgspec.structs.replace(step.executable, early_updates=is_early)
    interpreter = Interpreter(executable, programs)
    (place,) = {each.in_shardings[0] for each in programs if each.program.name == "stage1_update_0"}
    start = jax.device_put(jnp.eye(64), NamedSharding(place.mesh, PartitionSpec()))
    count = len(jax.tree.leaves(program.args[0]))
    state, batch = jax.tree.leaves(program.args)[:count], jax.tree.leaves(program.args)[count:]
    state = jax.block_until_ready(interpreter([*state, *batch]))[:count]  # compiles `spin`, too
    held.clear()
    forward.clear()
    for _ in range(2):
        state = interpreter([*state, *batch])[:count]
    forward[4].block_until_ready()  # 0F0 of the second step
    assert not held[0].is_ready()
    jax.block_until_ready(state)


def scanned(state: Any, x: Any) -> Any:
    def loss(state: Any) -> Any:
        def layer(h: Any, w: Any) -> tuple[Any, None]:
            return jnp.tanh(h @ w), None

        return jnp.mean(jax.lax.scan(layer, x, state["stack"])[0] ** 2)

    value, gradients = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda w, g: w - g / 10, state, gradients), value


@pytest.mark.parametrize("first", [0, 1])
def test_a_stack_is_gone_once_a_stage_has_consumed_its_rows_and_not_while_it_is_a_copy(
    first: int,
) -> None:
    """Its rows are arguments of the programs; the user knows only the stack."""
    weights, x = np.ones((4, 8, 8), np.float32) / 8, np.ones((8, 8), np.float32)
    fun = shardc.jit(
        scanned, donate_argnums=0, cluster=CLUSTER, mesh=(1,), stages=2, microbatches=2
    )
    step = fun.lower({"stack": weights}, x).compile()
    lanes = step.executable.actions if first == 0 else step.executable.actions[::-1]

    def fail(*values: Any) -> None:
        raise RuntimeError("out of memory")

    programs = [
        dataclasses.replace(each, call=fail)
        if each.program.consumes_arguments and each.program.stage != first
        else each
        for each in step.programs
    ]
    failing = Interpreter(msgspec.structs.replace(step.executable, actions=lanes), programs)
    said = "shardc: the updates had begun; donated arguments that are gone: "
    own = jnp.asarray(weights)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        failing([own, x])  # on one device: its rows were copied into place
    assert caught.value.__notes__ == [f"{said}none"]
    np.testing.assert_array_equal(own, weights)
    state, _ = step({"stack": own}, x)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        failing([state["stack"], x])
    assert caught.value.__notes__ == [f"{said}state['stack']"]
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(state["stack"])
