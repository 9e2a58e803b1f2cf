"""What devices hold while a step runs is what the checker and the simulator say of its lanes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api.compiled import Compiled
from shardc.plan.program_graph import executable_graph
from shardc.schedule.check import check, peaks
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import Schedule, TaskGraph
from tests.py.live_bytes import measured_peaks
from tests.py.passes.test_outline_stages import flat, relative_error
from tests.py.passes.test_slice_tokens import arguments, attention, infinite, step_of
from tests.py.table import CLUSTER

WIDTH, ROWS = 16, 8


@functools.cache
def compiled(schedule: str, groups: int, microbatches: int, layers: int) -> tuple[Compiled, Any]:
    """Equal layers, spread evenly over device groups of one device each."""

    def step(weights: list[jax.Array], x: jax.Array, t: jax.Array) -> Any:
        def loss_of(weights: list[jax.Array]) -> jax.Array:
            h = x
            for w in weights:
                h = jnp.tanh(h @ w)
            return jnp.mean((h - t) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss

    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4 for _ in range(layers)]
    rows = ROWS * microbatches
    x, t = (draw.normal(size=(rows, WIDTH)).astype(np.float32) for _ in range(2))
    found = shardc.jit(
        step,
        cluster=CLUSTER,
        mesh=(1,),
        stages=groups,
        microbatches=microbatches,
        schedule=schedule,
        time_limit_s=30,
    )
    return found.lower(weights, x, t).compile(), (weights, x, t)


def checked_peaks(name: str, groups: int, microbatches: int) -> tuple[Schedule, TaskGraph]:
    """Two layers per group; asserts that checker, simulator and devices agree on the peaks."""
    step, args = compiled(name, groups, microbatches, 2 * groups)
    schedule, graph = executable_graph(step.executable)
    check(schedule, graph)
    expected = peaks(schedule, graph)
    assert simulate(schedule, graph, lambda task: 1).peak_activations == expected
    assert measured_peaks(step, args) == dict(enumerate(expected))
    return schedule, graph


@pytest.mark.parametrize(
    "name", ["gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "chimera", "bitpipe", "dualpipe"]
)
def test_the_measured_peak_of_each_group_is_the_checkers(name: str) -> None:
    checked_peaks(name, 2, 4)


@pytest.mark.parametrize(("name", "slices", "devices"), [("seq1f1b", 4, 1), ("terapipe", 2, 2)])
def test_token_slices_run_in_their_order_and_hold_what_the_checker_says(
    name: str, slices: int, devices: int
) -> None:
    with jax.enable_x64(True):
        step, args = step_of(attention(infinite)), arguments()
        expected = flat(jax.jit(step)(*args))
        found = shardc.jit(
            step,
            cluster=CLUSTER,
            mesh=(devices,),
            stages=2,
            microbatches=2,
            schedule=name,
            slices=slices,
            time_limit_s=20,
        )
        sliced = found.lower(*args).compile()
        for ours, theirs in zip(flat(sliced(*args)), expected, strict=True):
            assert relative_error(ours, theirs) < 1e-12
        ran = list(dict.fromkeys(action for action, _ in sliced.interpreter.last_trace))
        for lane in sliced.executable.actions:
            assert f"{lane[0][0]}B1.{slices - 1}" in lane
            in_order = [action for action in ran if action in lane]
            assert in_order == [action for action in lane if action in ran]
        schedule, graph = executable_graph(sliced.executable)
        check(schedule, graph)
        expected_peaks = {
            group * devices + device: held
            for group, held in enumerate(peaks(schedule, graph))
            for device in range(devices)
        }
        assert measured_peaks(sliced, args) == expected_peaks
        predicted = [stage.peak_bytes for stage in sliced.plan.stages]  # with what programs need
        assert all(p >= held for p, held in zip(predicted, peaks(schedule, graph), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "groups", "most"),
    [
        ("1f1b-v", 4, 3),
        ("v-half", 4, 3),
        ("v-min", 4, 2),
        ("1f1b-v", 8, 6),
        ("v-half", 8, 5),
        ("v-min", 8, 4),
    ],
)
def test_v_schedules_keep_so_many_microbatches_on_devices(
    name: str, groups: int, most: int
) -> None:
    """ceil(2p / 3), (p + 2) // 2 and (p + 4) // 3 with p groups."""
    schedule, graph = checked_peaks(name, groups, 2 * groups)
    # Activations count from their own forward on; what arrives before it is on its way.
    kept = [
        b._replace(maker=next(u for u in (b.maker, *b.users) if graph.group(u) == b.group))
        for b in graph.buffers
        if b.maker.kind == "F" and any(u.kind != "F" for u in b.users)
    ]
    of_chunk = {
        stage: sum(b.num_bytes for b in kept if b.maker.stage == stage and not b.maker.microbatch)
        for stage in range(2 * groups)
    }
    last = 2 * groups - 1
    of_one = [2 * max(of_chunk[group], of_chunk[last - group]) for group in range(groups)]
    held = peaks(schedule, TaskGraph(graph.needs, graph.groups, tuple(kept)))
    assert all(most_held <= most * one for most_held, one in zip(held, of_one, strict=True))
