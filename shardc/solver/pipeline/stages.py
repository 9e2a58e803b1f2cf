"""Cuts layers into pipeline stages and assigns each a submesh.

Alpa's inter-operator dynamic program (Zheng et al., OSDI 2022, algorithm 1), with three changes:
the period between two microbatches is bisected instead of enumerated; transfers are priced by the
placement of the stages; with few microbatches in flight, a schedule waits for round
trips.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardc.solver.pipeline.stage_line import END, HOST, INSIDE, Line
from shardc.solver.problem.problem import Floats

CLOSE = 1e-6  # relative step time difference that is ignored
EVEN = 1.02  # relative difference of the slowest stage that is ignored in one microbatch
BELOW, ABOVE = 1.0 - 1e-9, 1.0 + 1e-12  # allow for rounding in bounds
LONGEST_S = 1e300  # stands for no limit in sums and products
CELLS = 1 << 22  # of one table of choices: first layer x last layer x devices


@dataclass(frozen=True)
class Pipeline:
    """The stages found.

    Attributes:
        stages: (first layer, last layer, devices) in order; devices are taken in order, too.
        places: the place of each stage.
        step_time_s: round trip of the first microbatch + (microbatches - 1) * period.
        period_s: between two microbatches: the slowest stage, the busiest link, or the longest
            round trip from a stage to the last one and back, divided by `Line.periods`.
    """

    stages: tuple[tuple[int, int, int], ...]
    step_time_s: float
    period_s: float
    places: tuple[int, ...] = ()


def plan_stages(
    line: Line,
    *,
    num_stages: int | None = None,
    below_s: float = math.inf,
    close: float = CLOSE,
) -> Pipeline | None:
    """Finds the pipeline with the least step time.

    Args:
        num_stages: None = any.
        below_s: only a pipeline with a shorter step counts.
        close: relative error of the step time; a pipeline that is faster than `below_s` by less
            may not be found.
    Returns:
        None if there is no pipeline: there are more stages than layers, the sizes cannot fill
        the devices, or every pipeline has a stage that does not fit or takes at least `below_s`.
    """
    if num_stages is not None and num_stages > line.num_layers:
        return None
    more = line.num_microbatches - 1
    least = _least(line)
    least_trip_s = float(least.trip_s[-1])
    least_period_s = float(least.busy_s[-1]) / line.num_devices
    if least_trip_s + more * least_period_s >= below_s:
        return None
    table = _Table(line, num_stages, least)
    most_s = math.inf if more == 0 else (below_s - least_trip_s) / more
    first = table.cheapest(min(below_s, most_s), below_s - more * least_period_s)
    if first is None:
        return None
    best = None
    limit_s = below_s
    # Intervals of periods; no pipeline with a period inside one has a shorter round trip.
    spans = []

    def found(pipeline: Pipeline) -> None:
        nonlocal best, limit_s
        if pipeline.step_time_s < limit_s:
            best, limit_s = pipeline, pipeline.step_time_s

    found(first)
    if more == 0:
        return _evened(table, first, least_period_s)
    spans.append((least_period_s, first.period_s, first.step_time_s - more * first.period_s))
    while spans:
        low_s, high_s, trip_s = spans.pop()
        if more * (high_s - low_s) <= close * (trip_s + more * high_s):
            continue
        if trip_s + more * low_s >= limit_s * (1.0 - close):
            continue
        middle_s = (low_s + high_s) / 2
        pipeline = table.cheapest(middle_s, limit_s - more * low_s)
        spans.append((middle_s, high_s, trip_s))
        if pipeline is not None:
            found(pipeline)
            trip = pipeline.step_time_s - more * pipeline.period_s
            spans.append((low_s, pipeline.period_s, trip))
    return best


def _evened(table: "_Table", pipeline: Pipeline, least_s: float) -> Pipeline:
    """Of the pipelines that are as fast for one microbatch, one whose slowest stage is hardly
    slower than it must be: other schedules overlap what the stages do at the end.

    Args:
        least_s: a lower bound on the seconds of the slowest stage.
    """
    while pipeline.period_s > EVEN * least_s:
        middle_s = (least_s + pipeline.period_s) / 2
        other = table.cheapest(middle_s, pipeline.step_time_s * (1.0 + CLOSE))
        if other is None:
            least_s = middle_s
        else:
            pipeline = other
    return pipeline


class _Least(NamedTuple):
    """Lower bounds for the layers before each one, and for all: the seconds of any stages in a row,
    and the device seconds, if nothing is sent."""

    trip_s: Floats
    busy_s: Floats


def _least(line: Line) -> _Least:
    """A stage is no faster with more microbatches in flight than with those of the last."""
    tables = [line.stage_s(m, line.in_flight(0)) for m in range(len(line.places))]
    least_s = np.minimum.reduce(tables)
    busy_s = np.minimum.reduce([p.size * t for p, t in zip(line.places, tables, strict=True)])
    trip, busy = np.zeros(line.num_layers + 1), np.zeros(line.num_layers + 1)
    for last in range(line.num_layers):
        trip[last + 1] = np.min(trip[: last + 1] + least_s[: last + 1, last])
        busy[last + 1] = np.min(busy[: last + 1] + busy_s[: last + 1, last])
    return _Least(trip * BELOW, busy * BELOW)


class _Table:
    """Least round trips for the last layers on the last devices, under one bound on the period."""

    def __init__(self, line: Line, num_stages: int | None, least: _Least) -> None:
        # Each bound asks for the same costs.
        self.line = replace(
            line,
            stage_s=functools.cache(line.stage_s),
            send_s=functools.cache(line.send_s),
            link_s=functools.cache(line.link_s),
            in_flight=functools.cache(line.in_flight),
        )
        self.num_stages = num_stages
        sizes = [place.size for place in line.places]
        self.unit = math.gcd(line.num_devices, *sizes, *(place.first for place in line.places))
        self.devices = line.num_devices // self.unit
        self.sizes = [size // self.unit for size in sizes]
        most = min(line.num_layers, line.num_devices // min(sizes))
        self.most = most if num_stages is None else min(num_stages, most)
        self.least = least
        self._bands: dict[tuple[int, int], Floats] = {}
        self._within: tuple[float, dict[int, Floats]] = math.inf, {}  # a bound -> bands under it
        self._sent: dict[int, tuple[Floats, Floats]] = {}

    def cheapest(self, bound_s: float, most_s: float = math.inf) -> Pipeline | None:
        """The shortest round trip of any pipeline whose period is at most `bound_s`; None if there
        is none that takes at most `most_s`."""
        line = self.line
        num_layers, devices = line.num_layers, self.devices
        # [place of the first stage, first layer, devices] of the least round trip of some stages.
        shape = len(self.sizes), num_layers + 1, devices + 1
        number = np.min_scalar_type(-len(self.sizes) * num_layers)
        ahead = np.full(shape, np.inf)
        ahead[0, num_layers, 0] = 0.0
        picks: list[npt.NDArray[np.signedinteger]] = []
        best_s, best_count, first = math.inf, 0, 0
        # Devices that the layers before each one need to keep up, and what they add to the trip.
        left = line.num_devices - self.unit * np.arange(devices + 1)
        hopeless = self.least.busy_s[:-1, None] > min(bound_s, LONGEST_S) * ABOVE * left
        room_s = min(most_s, LONGEST_S) * ABOVE - self.least.trip_s[:-1]
        for count in range(1, self.most + 1):
            in_flight = line.in_flight(count - 1)
            longest_s = bound_s * line.periods(count - 1) * ABOVE
            best, pick = np.full(shape, np.inf), np.full(shape, -1, number)
            filled = np.flatnonzero(np.isfinite(ahead).any(axis=(0, 1)))
            if not len(filled):
                break
            for m, size in enumerate(self.sizes):
                columns = filled
                columns = columns[columns + size <= devices]
                columns = columns[[self._placeable(m, int(d) + size) for d in columns]]
                band = self._band(m, in_flight, bound_s)
                if not len(columns) or not band.shape[1]:
                    continue
                rest, after = self._rest(m, columns, ahead[:, 1:, columns], bound_s)
                trips, lasts = self._join(band, rest)
                to = columns + size
                useless = (trips > np.minimum(longest_s, room_s)[:, None]) | hopeless[:, to]
                trips[useless] = np.inf
                best[m, :num_layers, to] = trips.T
                nexts = after[lasts, np.arange(len(columns))]
                pick[m, :num_layers, to] = (nexts * num_layers + lasts).T
            ahead = best
            picks.append(pick)
            if ahead[:, 0, devices].min() < best_s and self.num_stages in (None, count):
                best_s, best_count = float(ahead[:, 0, devices].min()), count
                first = int(ahead[:, 0, devices].argmin())
        return self._pipeline(picks, best_count, first, best_s) if best_count else None

    def _band(self, m: int, in_flight: int, bound_s: float) -> Floats:
        """[first layer, layers after it]: the seconds of a stage, inf above `bound_s`; as wide as
        the longest stage below."""
        band = self._whole_band(m, in_flight)
        if self._within[0] != bound_s:
            self._within = bound_s, {}
        known = self._within[1]
        if id(band) not in known:
            fast = band <= bound_s
            width = int(np.flatnonzero(fast.any(axis=0))[-1:].sum()) + 1 if fast.any() else 0
            known[id(band)] = np.where(fast[:, :width], band[:, :width], np.inf)
        return known[id(band)]

    def _whole_band(self, m: int, in_flight: int) -> Floats:
        """[first layer, layers after it]: the seconds of a stage; one array if equal for several
        numbers in flight."""
        key = m, in_flight
        if key not in self._bands:
            stage_s = self.line.stage_s(m, in_flight)
            num_layers = self.line.num_layers
            wide = np.concatenate([stage_s, np.full((num_layers, num_layers), np.inf)], axis=1)
            start = np.arange(num_layers)[:, None]
            band = np.take_along_axis(wide, start + np.arange(num_layers)[None], axis=1)
            alike = (known for (place, _), known in self._bands.items() if place == m)
            self._bands[key] = next((b for b in alike if np.array_equal(b, band)), band)
        return self._bands[key]

    @staticmethod
    def _join(band: Floats, rest: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
        """[first layer, devices]: least stage plus rest over all last layers, and its argmin."""
        num_layers, columns = rest.shape
        width = band.shape[1]
        padded = np.concatenate([rest, np.full((width - 1, columns), np.inf)])
        rests = np.lib.stride_tricks.sliding_window_view(padded, width, axis=0)
        trips = np.empty((num_layers, columns))
        lasts = np.empty((num_layers, columns), np.int64)
        rows = max(1, CELLS // max(width * columns, 1))
        for start in range(0, num_layers, rows):
            part = band[start : start + rows, None, :] + rests[start : start + rows]
            own = part.argmin(axis=2)
            trips[start : start + rows] = np.take_along_axis(part, own[..., None], axis=2)[..., 0]
            lasts[start : start + rows] = own + np.arange(start, start + len(own))[:, None]
        return trips, np.minimum(lasts, num_layers - 1)

    def _rest(
        self, m: int, columns: npt.NDArray[np.int64], ahead: Floats, bound_s: float
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """[last layer, later devices]: least seconds there and back plus `ahead` over all places
        of the next stage, and its argmin; nothing is sent after the last layer."""
        if m not in self._sent:
            self._sent[m] = self._all_ends(self.line.send_s, m), self._all_ends(self.line.link_s, m)
        send_s, link_s = self._sent[m]
        sent = np.where(link_s <= bound_s, send_s, np.inf)
        sent[:, -1] = 0.0
        total = ahead + sent[:, :, [self._end(m, int(d)) for d in columns]]
        after = total.argmin(axis=0)
        return np.take_along_axis(total, after[None], axis=0)[0], after

    def _all_ends(self, table: Callable[[int, int, int], Floats], m: int) -> Floats:
        """[place of the next stage, last layer, how a stage ends]: of a stage at one place."""
        ends, places = (INSIDE, HOST, END), range(len(self.sizes))
        return np.array([[table(m, p, end) for end in ends] for p in places]).transpose(0, 2, 1)

    def _end(self, m: int, behind: int) -> int:
        """How a stage ends that is followed by the last `behind` devices."""
        place, position = self.line.places[m], (self.devices - behind) * self.unit
        if position == place.end:
            return END
        return HOST if (position - place.first) % place.host == 0 else INSIDE

    def _placeable(self, m: int, left: int) -> bool:
        """Whether a stage on the first of the last `left` devices respects its place and hosts."""
        place, start = self.line.places[m], (self.devices - left) * self.unit
        if start < place.first or start + place.size > place.end:
            return False
        inside = (start - place.first) % place.host
        return inside + place.size <= place.host or (inside == 0 and place.size % place.host == 0)

    def _pipeline(
        self, picks: list[npt.NDArray[np.signedinteger]], count: int, m: int, trip_s: float
    ) -> Pipeline:
        line = self.line
        stages: list[tuple[int, int, int]] = []
        layer, left, period_s, ahead_s = 0, self.devices, 0.0, 0.0
        trips, places = [], []
        for stage in range(count, 0, -1):
            after, last = divmod(int(picks[stage - 1][m, layer, left]), line.num_layers)
            left -= self.sizes[m]
            own_s = float(line.stage_s(m, line.in_flight(stage - 1))[layer, last])
            sent_s = link_s = 0.0
            if stage > 1:
                to = m, after, self._end(m, left)
                sent_s, link_s = float(line.send_s(*to)[last]), float(line.link_s(*to)[last])
            trips.append((own_s, sent_s, link_s))
            stages.append((layer, last, line.places[m].size))
            places.append(m)
            layer, m = last + 1, after
        for behind, (own_s, sent_s, link_s) in enumerate(reversed(trips)):
            ahead_s += own_s + sent_s
            period_s = max(period_s, own_s, link_s, ahead_s / line.periods(behind))
        step_s = trip_s + (line.num_microbatches - 1) * period_s
        return Pipeline(tuple(stages), step_s, period_s, tuple(places))
