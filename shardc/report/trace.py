"""Traces for Perfetto (ui.perfetto.dev): lanes of actions, memory, and transfers.

Source: Perfetto's TracePacket protocol buffers, written by the `perfetto` package; times in
nanoseconds.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shardc.errors import InputError, writing
from shardc.files import write_whole
from shardc.plan.account import Account, Timed
from shardc.plan.decisions import Plan
from shardc.report.memory_curve import group_of_action, memory_curve
from shardc.runtime.tape.measured import MeasuredStep
from shardc.schedule.shown.chrome_trace import chrome_trace
from shardc.schedule.simulate import Simulation
from shardc.schedule.tasks import KINDS, Task

Counter = tuple[str, tuple[tuple[int, float], ...]]
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
    counters: tuple[Counter, ...] = ()


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
    return Process("predicted", *_lanes(plan, account))


def measured(step: MeasuredStep, plan: Plan, number: int) -> Process:
    """A measured step, action by action; it begins at 0, like the predicted one.

    Transfers are those of the plan. Memory has the predicted sizes at measured times.
    """
    name = f"measured step {number}"
    group_of = group_of_action(plan)
    timeline = tuple(
        Timed(action, group_of(action), a / NS, b / NS)
        for action, a, b in sorted(step.runs, key=lambda run: run[1:])
    )
    account = plan.account or Account(0)
    return Process(name, *_lanes(plan, msgspec.structs.replace(account, timeline=timeline)))


def _lanes(plan: Plan, account: Account) -> tuple[tuple[Slice, ...], tuple[Counter, ...]]:
    """Slices with their flows, and memory, of the timeline of an account."""
    ran = {each.action for each in account.timeline}
    flows: dict[str, list[int]] = {}
    for number, sent in enumerate(account.sent, 1):
        if ran.issuperset((sent.source, sent.target)):
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
        for group in range(len(plan.groups))
    )
    return slices, counters


def _rows(slices: Sequence[Slice]) -> dict[tuple[int, str], list[list[Slice]]]:
    """The slices of each lane and link in rows, such that those of a row do not overlap."""
    rows: dict[tuple[int, str], list[list[Slice]]] = {}
    for each in sorted(slices, key=lambda each: each.start_ns):
        lane = rows.setdefault((each.lane, each.link), [])
        row = next((row for row in lane if row[-1].end_ns <= each.start_ns), None)
        if row is None:
            lane.append([each])
        else:
            row.append(each)
    return dict(sorted(rows.items()))


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
        for (lane, link), rows in _rows(process.slices).items():
            for n, row in enumerate(rows):
                track = next(uuids)
                packet = builder.add_packet()
                packet.track_descriptor.uuid = track
                packet.track_descriptor.parent_uuid = parent
                packet.track_descriptor.thread.pid = number
                packet.track_descriptor.thread.tid = track
                name = f"device group {lane}{link and f', {link}'}{f', beside ({n})' if n else ''}"
                packet.track_descriptor.thread.thread_name = name
                for each in row:
                    packet = _event(builder, each.start_ns, track)
                    packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN
                    packet.track_event.name = each.action
                    packet.track_event.categories.append(KINDS[Task.parse(each.action).kind])
                    packet.track_event.flow_ids.extend(number * (1 << 32) + f for f in each.flows)
                    packet = _event(builder, each.end_ns, track)
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
