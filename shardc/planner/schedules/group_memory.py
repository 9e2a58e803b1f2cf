"""The memory of the device groups of a planned pipeline under other schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardc.planner.candidate import Candidate
from shardc.planner.schedules.cuts import Cut
from shardc.planner.schedules.recut import Recut, Rule
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import BACKWARD, WEIGHT, Buffer, TaskGraph
from shardc.schedule.work import Work


class GroupMemory:
    """The memory of a group: that of the planned pipeline, with other stashes."""

    def __init__(self, base: Candidate, work: Work, recut: Recut) -> None:
        self._base, self._recut = base, recut
        held = schedule_named(base.shape.schedule).in_flight(work)
        # By group, the bytes on a device of one byte of a stashed value.
        self._shares = []
        for group, (report, many) in enumerate(zip(base.reports, held, strict=True)):
            known = recut.planned.stashed.get(group, 0) * many
            devices = len(base.shape.meshes[group].device_ids)
            self._shares.append(report.memory.stash / known if known else 1 / devices)

    def peak_bytes(self, held: Sequence[float], copied: Mapping[int, float], rule: Rule) -> float:
        """Of the fullest device.

        Args:
            held: by group, the most bytes of its buffers (see `with_bytes`).
            copied: by group, the bytes of second copies of stages besides their activations.
        """
        remade = self._remade_bytes(rule)
        return max(
            report.peak_bytes - report.memory.stash + most + more + copied.get(group, 0.0)
            for group, (report, most, more) in enumerate(
                zip(self._base.reports, held, remade, strict=True)
            )
        )

    def _remade_bytes(self, rule: Rule) -> list[float]:
        """By group, the bytes of the layer that a stage recomputes beyond what the plan
        recomputes."""
        planned, cut = self._recut.planned, self._recut.whole(rule)
        layers = self._base.proposal.layers
        less = (planned.stashed.get(g, 0) - cut.stashed.get(g, 0) for g in range(len(layers)))
        return [
            share * max(each, 0) / len(own)
            for share, each, own in zip(self._shares, less, layers, strict=True)
        ]

    def with_bytes(self, cut: Cut, graph: TaskGraph, slices: int) -> TaskGraph:
        """`graph`, with buffers as large as the stash of a stage for one microbatch or slice of it,
        per device; and with those that B leaves to W."""
        stashes = (
            each._replace(
                num_bytes=self._shares[each.group] * cut.stashed.get(each.maker.stage, 0) / slices
            )
            for each in graph.buffers
        )
        between = (
            Buffer(group, self._shares[group] * cut.kept.get(task.stage, 0) / slices, made, (task,))
            for task in graph.tasks
            if task.kind == WEIGHT and (made := task._replace(kind=BACKWARD)) in graph.needs
            for group in [graph.group(task)]
        )
        return replace(graph, buffers=(*stashes, *between))
