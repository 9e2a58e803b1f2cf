"""Writes a simulated schedule in the Chrome trace format, for chrome://tracing or Perfetto."""

from typing import Any

from shardc.schedule.simulate import Simulation

US_PER_S = 1e6


def chrome_trace(simulation: Simulation) -> dict[str, Any]:
    """JSON data with one complete event ("ph": "X") per action and one thread per device, and one
    per link of a device that moves take.

    Actions that take no time are omitted. Source: Google's "Trace Event Format" (times in
    microseconds).
    """
    lasting = [timed for timed in simulation.timeline if timed.end_s > timed.start_s]
    devices = range(len(simulation.peak_activations))
    threads = [("", device) for device in devices]
    threads += sorted({(t.link, t.device) for t in lasting} - set(threads))
    names = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 0,
            "tid": number,
            "args": {"name": f"device {device}{link and f', {link}'}"},
        }
        for number, (link, device) in enumerate(threads)
    ]
    events = [
        {
            "name": str(timed.action),
            "cat": timed.action.kind,
            "ph": "X",
            "ts": float(timed.start_s) * US_PER_S,
            "dur": float(timed.end_s - timed.start_s) * US_PER_S,
            "pid": 0,
            "tid": threads.index((timed.link, timed.device)),
            "args": timed.action._asdict(),
        }
        for timed in lasting
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
