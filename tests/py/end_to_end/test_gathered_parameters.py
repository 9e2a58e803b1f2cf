"""Parameters that lie sharded (FSDP) are gathered, and gradients reduced, by actions G and R."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import shardc
from shardc.api.stages import Compiled, Planned
from shardc.errors import InputError, ScheduleError, ShardcError
from shardc.plan.program_graph import executable_graph
from shardc.plan.stages_spec import StageSpec, StagesSpec
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.check_tape import check_tape
from shardc.runtime.tape.instructions import Free, Run
from shardc.schedule import group_instructions as of_groups
from shardc.schedule.check import check, peaks, run_order
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import Schedule, Task, parse_lanes
from shardc.schedule.work import Work
from tests.py.live_bytes import measured_peaks
from tests.py.programs import Program, build, leaves
from tests.py.table import CLUSTER

DEVICES, WIDTH, LAYERS, ROWS = 8, 16, 8, 32


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def skips() -> Program:
    """Momentum on layers of which the last ones also read what the first ones have made."""

    def step(weights: Any, momentum: Any, x: jax.Array, t: jax.Array) -> Any:
        def loss_of(weights: Any) -> jax.Array:
            h, seen = x, []
            for i, layer in enumerate(weights):
                if i < LAYERS // 2:
                    seen.append(h)
                h = jnp.tanh(h @ layer["kernel"] + layer["bias"])
                h = h if i < LAYERS // 2 else h + seen.pop()
            return jnp.mean((h - t) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum), momentum, loss

    draw = np.random.default_rng(0)
    weights = [
        {"kernel": draw.normal(size=(WIDTH, WIDTH)) / 4, "bias": draw.normal(size=WIDTH) / 4}
        for _ in range(LAYERS)
    ]
    momentum = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape) / 9, weights)
    x, t = (draw.normal(size=(ROWS, WIDTH)) for _ in range(2))
    return Program(step, (weights, momentum, x, t))


def program(name: str) -> Program:
    return skips() if name == "skips" else build(name, "float64")


def spec(schedule: str, groups: int, chunks: int, microbatches: int, **more: Any) -> StagesSpec:
    """Even stages, each of whose meshes has an axis over which parameters lie sharded."""
    return StagesSpec(
        1,
        (StageSpec(),) * (groups * chunks),
        microbatches,
        schedule,
        chunks,
        **{"mesh": {"data": DEVICES // groups}, "gather": "data", **more},
    )


def planned(name: str, wanted: StagesSpec) -> Planned:
    own = program(name)
    step = shardc.jit(own.step, donate_argnums=own.donate_argnums, cluster=CLUSTER, plan=wanted)
    return step.lower(*own.args).plan()


@functools.cache
def looped() -> tuple[Planned, Compiled]:
    """Four chunks on each of two groups: none stays gathered."""
    found = planned("skips", spec("breadth-first", 2, 4, 4))
    return found, found.compile()


def check_step(name: str, found: Planned, compiled: Compiled) -> None:
    """Asserts the numbers of `jax.jit`, the order of the lanes and the bytes of the checker."""
    own = program(name)
    expected = leaves(jax.jit(own.step)(*own.args))
    schedule, graph = executable_graph(compiled.executable)
    check(schedule, graph)
    held = measured_peaks(compiled, program(name).args)
    for lane, most in zip(schedule.lanes, peaks(schedule, graph), strict=True):
        place = lane[0].place(compiled.executable.num_stages)
        mesh = compiled.executable.meshes[place]
        assert {held[device] for device in mesh.device_ids} == {most}
    got = leaves(compiled(*program(name).args))
    for key, value in expected.items():
        limit = 1e-9 * np.max(np.abs(value), initial=1e-30)
        np.testing.assert_allclose(got[key], value, rtol=0, atol=limit, err_msg=key)
    ran = list(dict.fromkeys(action for action, _ in compiled.interpreter.last_trace))
    for lane in found.plan.lanes:
        in_lane = [action for action in ran if action in set(lane)]
        assert in_lane == [action for action in lane if action in ran]
        assert {"G", "R"} <= {action[1] for action in in_lane}


# The way of each, once; `benchmarks/schedules.py --gather` has every family.
@pytest.mark.parametrize(
    ("name", "schedule", "groups", "chunks", "microbatches"),
    [
        ("skips", "gpipe", 4, 1, 8),
        ("mlp", "1f1b", 4, 1, 8),
        ("skips", "dualpipe", 2, 1, 4),
        ("gpt", "breadth-first", 2, 2, 2),
    ],
)
def test_numbers_order_and_bytes(
    name: str, schedule: str, groups: int, chunks: int, microbatches: int
) -> None:
    found = planned(name, spec(schedule, groups, chunks, microbatches))
    check_step(name, found, found.compile())


def test_breadth_first_gathers_each_chunk_once_per_pass() -> None:
    found, compiled = looped()
    check_step("skips", found, compiled)
    for lane in found.plan.lanes:  # the two chunks with which the forward pass ends are still there
        assert [sum(action[1] == kind for action in lane) for kind in "GR"] == [6, 4]


def test_state_is_split_and_the_programs_of_microbatches_see_whole_parameters() -> None:
    executable = looped()[1].executable
    by_kind: dict[str, Any] = {
        kind: [p for p in executable.programs if p.kind == kind]
        for kind in ("gather", "forward", "weight", "backward", "reduce", "update")
    }
    for each in by_kind["gather"]:
        assert each.args and all("data" in spec.sharding.axes for spec in each.args)
        assert all("data" not in spec.sharding.axes for spec in each.results)
    assert not [
        spec.value
        for kind in ("forward", "backward")
        for each in by_kind[kind]
        for spec in each.args
        if spec.value.startswith("arg")
        and executable.arguments[int(spec.value[3:])].batch_dim is None
    ]
    for each in by_kind["reduce"]:
        assert all("data" in spec.sharding.axes for spec in each.results)
        partial = [spec for spec in each.args if spec.sharding.unreduced == ("data",)]
        assert len(partial) == len(each.results)


def test_the_report_calls_it_fully_sharded() -> None:
    found, _ = looped()
    text = str(found.explain())
    assert "FSDP (ZeRO-3: 100% of the parameters are split)" in text
    assert "parameters weights" in text and found.plan.stages[1].memory.parameters


def test_a_saved_plan_runs_the_same(tmp_path: Path) -> None:
    found, compiled = looped()
    found.plan.save(tmp_path / "plan.json")
    own = skips()
    step = shardc.jit(own.step, cluster=CLUSTER, plan=tmp_path / "plan.json")
    again = step.lower(*own.args).plan()
    assert again.plan.gather == "data" and again.plan.lanes == found.plan.lanes
    for one, other in zip(
        jax.tree.leaves(again.compile()(*own.args)),
        jax.tree.leaves(compiled(*own.args)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_forward_function_gathers_and_reduces_nothing() -> None:
    def infer(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        return functools.reduce(lambda h, w: jnp.tanh(h @ w), weights, x)

    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(WIDTH, WIDTH)) / 4 for _ in range(4)]
    x = draw.normal(size=(ROWS, WIDTH))
    step = shardc.jit(infer, cluster=CLUSTER, plan=spec("gpipe", 2, 1, 4))
    np.testing.assert_allclose(step(weights, x), infer(weights, x), rtol=0, atol=1e-12)
    assert [lane[0] for lane in step.plan.lanes] == ["0G0", "1G0"]


def test_a_grid_says_when_to_gather(tmp_path: Path) -> None:
    """It gathers a second time, between two microbatches, and reduces twice."""
    grid = tmp_path / "mine.grid"
    grid.write_text(
        "0 | 0G0 0F0 0B0 0R0 0G1 0F1 0B1 0R1\n1 | 1G0 1F0 1B0 1F1 1B1 1R0\n", encoding="utf-8"
    )
    found = planned("mlp", spec(str(grid), 2, 1, 2))
    assert [action for action in found.plan.lanes[0] if action[1] in "GR"] == [
        "0G0", "0R0", "0G1", "0R1",
    ]  # fmt: skip
    check_step("mlp", found, found.compile())


def lanes_of(change: str) -> tuple[tuple[str, ...], ...]:
    """The lanes of `looped` with a change: `0G0` taken out, or `0G0>0F1` put behind another."""
    what, _, behind = change.partition(">")
    found = []
    for lane in looped()[0].plan.lanes:
        kept = [action for action in lane if action != what]
        if behind in kept and what in lane:
            kept.insert(kept.index(behind) + 1, what)
        found.append(tuple(kept))
    return tuple(found)


CHANGES = [
    ("0G0", "0F0 uses the parameters of stage 0, which no G has gathered"),
    ("0G0>0F1", "0F0 uses the parameters of stage 0, which no G has gathered"),
    ("2R0", "comes after the last R of its stage"),
    ("2R0>2B1", "comes after the last R of its stage"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_the_checker_refuses_a_missing_or_late_move(change: str, said: str) -> None:
    family = schedule_named("breadth-first")
    work = family.work(Work(2, 4, gathers=True), 4)
    with pytest.raises(ScheduleError, match=said) as caught:
        family.graph(work, Schedule(parse_lanes(lanes_of(change))))
    assert caught.value.code == "SHARDC-248" and "row 0, column" in str(caught.value.where)


@pytest.mark.parametrize("change", [change for change, _ in CHANGES])
def test_what_is_forced_past_the_checker_is_refused_by_the_runtime(change: str) -> None:
    _, compiled = looped()
    changed = msgspec.structs.replace(compiled.executable, actions=lanes_of(change))
    with pytest.raises(ShardcError) as caught:
        build_tape(changed, compiled.programs)
    assert caught.value.code in ("SHARDC-260", "SHARDC-266")


def test_gathered_parameters_freed_too_early_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the checker of instructions, by that of the tape, and at last by the step itself."""
    _, compiled = looped()
    schedule, graph = executable_graph(compiled.executable)
    found = of_groups.instructions_of(schedule, graph, run_order(schedule, graph))
    (buffer, *_) = graph.made_by[Task(0, "G")]
    lane = [each for each in found[0] if each != of_groups.Free(buffer)]
    lane.insert(lane.index(of_groups.Run(Task(0, "G"))) + 1, of_groups.Free(buffer))
    with pytest.raises(ScheduleError, match="is freed before 0F0 reads it") as refused:
        of_groups.check_instructions({**found, 0: lane}, graph)
    assert refused.value.code == "SHARDC-246"
    tape = build_tape(compiled.executable, compiled.programs)
    gather = next(each for each in tape.instructions if isinstance(each, Run))
    assert gather.action == "0G0"
    tape.instructions.insert(tape.instructions.index(gather) + 1, Free(gather.results[:1]))
    with pytest.raises(ShardcError, match="of G0 on the devices of stage 0") as caught:
        check_tape(tape, compiled.programs)
    assert caught.value.code == "SHARDC-266"
    monkeypatch.setattr("shardc.runtime.interpreter.build_tape", lambda *_: tape)
    forced = Interpreter(compiled.executable, compiled.programs)
    with pytest.raises(ShardcError, match="'0F0' reads") as caught:
        forced(jax.tree.leaves(skips().args))
    assert caught.value.code == "SHARDC-266"


def test_an_axis_that_no_mesh_has_is_refused() -> None:
    with pytest.raises(InputError, match="gathers parameters over 'model'") as caught:
        planned("mlp", spec("1f1b", 2, 1, 2, gather="model"))
    assert caught.value.code == "SHARDC-110"
