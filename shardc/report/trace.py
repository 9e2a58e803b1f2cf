"""Traces for Perfetto (ui.perfetto.dev): lanes of actions, memory, and transfers.

Source: Perfetto's TracePacket protocol buffers, written by the `perfetto` package; times in
nanoseconds.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.errors import InputError, writing
from shardc.files import write_whole
from shardc.plan.decisions import Plan
from shardc.report.memory import group_of_action, memory_curve, stages_of_groups
from shardc.runtime.tape.measured import MeasuredStep
from shardc.schedule.simulate import Simulation
from shardc.schedule.tasks import KINDS, Task
from shardc.schedule.trace import chrome_trace

NS = 1e9
WRITER = 1  # id of the packet sequence


@dataclass(frozen=True)
class Slice:
    """An action on a lane, or a move on a link of its device group; a send and its receive share a
    number in `flows`."""

    action: str
    lane: int
    start_ns: int
    end_ns: int
    flows: tuple[int, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Process:
    """A group of lanes, one per device group.

    Attributes:
        counters: name -> (time in ns, value) over time.
    """

    name: str
    slices: tuple[Slice, ...]
    counters: tuple[tuple[str, tuple[tuple[int, float], ...]], ...] = ()


def simulated(result: Simulation) -> Process:
    """A simulation; its unit of time becomes a second."""
    return Process(
        "simulated",
        tuple(
            Slice(
                str(t.action),
                t.device,
                round(t.start_s * 10**9),
                round(t.end_s * 10**9),
                link=t.link,
            )
            for t in result.timeline
            if t.end_s > t.start_s
        ),
    )


def predicted(plan: Plan) -> Process:
    """The predictions of a plan: actions, transfers between device groups, and memory.

    Raises:
        InputError: SHARDC-180, the plan has no account (`Plan.account`).
    """
    account = plan.account
    if account is None:
        raise InputError("the plan does not say when its actions run", help="plan again")
    flows: dict[str, list[int]] = {}
    for number, sent in enumerate(account.sent, 1):
        for action in (sent.source, sent.target):
            flows.setdefault(action, []).append(number)
    slices = tuple(
        Slice(t.action, t.group, _ns(t.start_s), _ns(t.end_s), tuple(flows.get(t.action, ())))
        for t in account.timeline
    )
    counters = tuple(
        (
            f"bytes on a device of group {group}",
            tuple((_ns(at), held) for at, held in memory_curve(plan, account, group)),
        )
        for group in range(len(stages_of_groups(plan)))
    )
    return Process("predicted", slices, counters)


def measured(step: MeasuredStep, plan: Plan, number: int) -> Process:
    """A measured step, action by action; it begins at 0, like the predicted one."""
    group_of = group_of_action(plan)
    return Process(
        f"measured step {number}",
        tuple(
            Slice(action, group_of(action), a - step.start_ns, b - step.start_ns)
            for action, a, b in step.runs
        ),
    )


def _ns(at_s: float) -> int:
    return round(at_s * NS)


def serialized(processes: Sequence[Process]) -> bytes:
    """The protocol buffer that Perfetto opens."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    uuids = iter(range(1, 1 << 30))
    for number, process in enumerate(processes, 1):
        parent = next(uuids)
        packet = builder.add_packet()
        packet.track_descriptor.uuid = parent
        packet.track_descriptor.process.pid = number
        packet.track_descriptor.process.process_name = process.name
        lanes: dict[tuple[int, str], int] = {}
        for lane, link in sorted({(each.lane, each.link) for each in process.slices}):
            lanes[lane, link] = next(uuids)
            packet = builder.add_packet()
            packet.track_descriptor.uuid = lanes[lane, link]
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.thread.pid = number
            packet.track_descriptor.thread.tid = lanes[lane, link]
            name = f"device group {lane}{link and f', {link}'}"
            packet.track_descriptor.thread.thread_name = name
        events: list[tuple[int, int, Any]] = []  # at equal times, ends come before begins
        for each in process.slices:
            events.append((each.end_ns, 0, each))
            events.append((each.start_ns, 1, each))
        for at, begins, each in sorted(events, key=lambda event: event[:2]):
            packet = _event(builder, at, lanes[each.lane, each.link])
            if begins:
                task = Task.parse(each.action)
                packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN
                packet.track_event.name = each.action
                packet.track_event.categories.append(KINDS[task.kind])
                packet.track_event.flow_ids.extend(number * (1 << 32) + f for f in each.flows)
            else:
                packet.track_event.type = TrackEvent.TYPE_SLICE_END
        for name, values in process.counters:
            track = next(uuids)
            packet = builder.add_packet()
            packet.track_descriptor.uuid = track
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.name = name
            packet.track_descriptor.counter.unit_name = "bytes"
            for at, value in values:
                packet = _event(builder, at, track)
                packet.track_event.type = TrackEvent.TYPE_COUNTER
                packet.track_event.double_counter_value = value
    found: bytes = builder.serialize()
    return found


def _event(builder: Any, at_ns: int, track: int) -> Any:
    packet = builder.add_packet()
    packet.timestamp = at_ns
    packet.trusted_packet_sequence_id = WRITER
    packet.track_event.track_uuid = track
    return packet


def save(path: str | Path, processes: Sequence[Process]) -> None:
    """Writes a trace; InputError (SHARDC-180) if that fails."""
    _write(path, serialized(processes))


def save_simulation(path: str | Path, result: Simulation) -> None:
    """Writes a simulated schedule: Chrome's JSON if the file name ends so, otherwise Perfetto's.

    Raises:
        InputError: SHARDC-180, the file cannot be written.
    """
    if str(path).endswith(".json"):
        _write(path, json.dumps(chrome_trace(result)).encode())
    else:
        save(path, [simulated(result)])


def _write(path: str | Path, data: bytes) -> None:
    with writing("the trace", path):
        write_whole(path, data)
