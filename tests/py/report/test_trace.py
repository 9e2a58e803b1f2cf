"""Traces for Perfetto: decoded, they say what the simulator said."""

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import shardc
from shardc.report.trace import measured, predicted, serialized
from shardc.runtime.tape.measured import MeasuredStep
from shardc.schedule.family import Costs
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import simulate
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work
from tests.py.cli import programs
from tests.py.report.test_reading import planned

Lanes = dict[str, dict[int, list[tuple[int, int]]]]


def decoded(data: bytes) -> tuple[Lanes, dict[int, int], dict[int, list[float]]]:
    """Process -> lane -> (start, end); flow -> how often; counter -> values."""
    trace = Trace.FromString(data)
    process: dict[int, str] = {}
    parent: dict[int, int] = {}
    open_at: dict[int, int] = {}
    lanes: Lanes = defaultdict(lambda: defaultdict(list))
    flows: dict[int, int] = defaultdict(int)
    counters: dict[int, list[float]] = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                process[track.uuid] = track.process.process_name
            parent[track.uuid] = track.parent_uuid
            continue
        event, at = packet.track_event, packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_at, "slices of a lane do not overlap"
            open_at[event.track_uuid] = at
            for flow in event.flow_ids:
                flows[flow] += 1
        elif event.type == TrackEvent.TYPE_SLICE_END:
            start = open_at.pop(event.track_uuid)
            lanes[process[parent[event.track_uuid]]][event.track_uuid].append((start, at))
        else:
            counters[event.track_uuid].append(event.double_counter_value)
    assert not open_at
    return lanes, flows, counters


def named(data: bytes) -> dict[str, dict[str, tuple[int, int]]]:
    """Process -> action -> start and end."""
    lanes, _, _ = decoded(data)
    process = {track: name for name, own in lanes.items() for track in own}
    ends = {(track, a): b for own in lanes.values() for track, each in own.items() for a, b in each}
    found: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for packet in Trace.FromString(data).packet:
        event, at = packet.track_event, packet.timestamp
        if packet.HasField("track_event") and event.type == TrackEvent.TYPE_SLICE_BEGIN:
            track = event.track_uuid
            found[process[track]][event.name] = at, ends[track, at]
    return found


def idle_share(lanes: dict[int, list[tuple[int, int]]]) -> Fraction:
    makespan = max(end for lane in lanes.values() for _, end in lane)
    busy = sum(end - start for lane in lanes.values() for start, end in lane)
    return 1 - Fraction(busy, makespan * len(lanes))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
def test_idle_time_is_the_simulators(name: str, tmp_path: Path) -> None:
    costs = Costs(times=Times(forward_s=1, backward_s=2, weight_s=1))
    found = plan_schedule(name, Work(4, 8), costs, None, None)
    result = simulate(found.schedule, found.graph, durations(found.work, costs.times), 1)
    path = tmp_path / "trace.pftrace"
    given = ["--schedule", name, "--stages", 4, "--microbatches", 8, "--transfer", 1]
    ran = programs.shardc("simulate", *given, "--times", "F=1,B=2,W=1", "--trace", path)
    assert ran.exit_code == 0, ran.output
    lanes, _, _ = decoded(path.read_bytes())
    assert idle_share(lanes["simulated"]) == result.bubble_ratio


def test_a_plan_has_lanes_flows_and_memory() -> None:
    plan = planned("", 2, 4)
    assert plan.account is not None
    lanes, flows, counters = decoded(serialized([predicted(plan)]))
    assert float(idle_share(lanes["predicted"])) == pytest.approx(
        plan.predicted.bubble_fraction, abs=1e-3
    )
    assert set(flows.values()) == {2}
    assert len(flows) == len(plan.account.sent)
    assert [max(values) for values in counters.values()] == [s.peak_bytes for s in plan.stages]


@pytest.mark.slow
def test_real_steps_stand_beside_what_was_predicted(tmp_path: Path) -> None:
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2))(w)

    function = shardc.jit(step, donate_argnums=0, stages=2, microbatches=2, mesh=(1,))
    w, x = np.eye(8, dtype=np.float32), np.ones((4, 8), np.float32)
    with (
        pytest.raises(shardc.ShardcError, match="cannot be written"),
        shardc.trace(tmp_path / "nowhere" / "step.pftrace"),
    ):
        raise AssertionError("no step is run for a file that cannot be written")
    with shardc.trace(tmp_path / "step.pftrace"):
        w = function(w, x)
        w = function(w, x)
    data = (tmp_path / "step.pftrace").read_bytes()
    lanes, flows, counters = decoded(data)
    assert set(lanes) == {"predicted", "measured step 0", "measured step 1"}
    assert {len(own) for own in lanes.values()} == {2}
    assert set(flows.values()) == {2}
    assert len(counters) == 3 * 2  # of each device group
    plan = function.plan
    assert plan.account is not None
    dispatched = {action for action, _ in function._running().interpreter.last_trace}
    for name in ("measured step 0", "measured step 1"):
        ran = named(data)[name]
        assert {a for a in dispatched if "F" in a or "B" in a} <= set(ran) <= dispatched
        sent = [s for s in plan.account.sent if s.source in ran and s.target in ran]
        assert len(sent) >= 2 * plan.num_microbatches
        for each in sent:  # nothing runs before its inputs are there
            assert ran[each.source][1] <= ran[each.target][0], each


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    function = shardc.jit(lambda x: x + 1.0, stages=1, mesh=(1,))
    function(np.ones(4, np.float32))
    jax.profiler.start_trace(tmp_path / "other")
    try:
        with (
            pytest.raises(shardc.ShardcError, match="end the other profile"),
            shardc.trace(tmp_path / "step.pftrace"),
        ):
            function(np.ones(4, np.float32))
    finally:
        jax.profiler.stop_trace()
    assert function(np.ones(4, np.float32))[0] == 2.0


def test_programs_of_a_device_group_that_overlap_are_in_rows() -> None:
    plan = planned("", 2, 4)
    step = MeasuredStep([("0F0", 0, 10), ("0F1", 5, 20), ("0F2", 12, 15), ("1F0", 11, 13)])
    lanes, _, _ = decoded(serialized([measured(step, plan, 0)]))
    assert sorted(lanes["measured step 0"].values()) == [[(0, 10), (12, 15)], [(5, 20)], [(11, 13)]]


@pytest.mark.slow
def test_a_run_from_the_command_has_predicted_and_measured_lanes(tmp_path: Path) -> None:
    file, plan_file, path = (
        programs.write_mlp(tmp_path),
        tmp_path / "p.json",
        tmp_path / "t.pftrace",
    )
    shape = ["--stages", 2, "--microbatches", 4, "--schedule", "1f1b", "--mesh", 2]
    ran = programs.shardc("plan", file, "--cluster", "cpu8", *shape, "-o", plan_file)
    assert ran.exit_code == 0, ran.output
    given = ["--devices", 4, "--plan", plan_file, "--steps", 2, "--trace", path]
    ran = programs.shardc("run", file, *given)
    assert ran.exit_code == 0, ran.output
    lanes, flows, _ = decoded(path.read_bytes())
    assert list(lanes) == ["predicted", "measured step 0", "measured step 1"]
    simulated = shardc.Plan.load(plan_file).predicted.bubble_fraction
    assert float(idle_share(lanes["predicted"])) == pytest.approx(simulated, abs=1e-3)
    assert {len(own) for own in lanes.values()} == {2}
    assert set(flows.values()) == {2}
