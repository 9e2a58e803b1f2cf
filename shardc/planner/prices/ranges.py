"""The seconds and the memory of all ranges of layers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shardc.planner.prices.layer_cost import LayerCost
from shardc.solver.problem.problem import Floats

RESIDENT = 2  # microbatches that never wait on the host: one computes, one is on its way

type Shared = Sequence[Sequence[tuple[int, int]]]
"""For each layer: an earlier layer, and the place of the argument that both read."""


def prefix_sums(rows: Sequence[float]) -> Floats:
    """[i, j]: sum of rows i..j."""
    sums = np.concatenate([[0.0], np.cumsum(rows)])
    return np.asarray(sums[None, 1:] - sums[:-1, None])


def range_maxima(rows: Sequence[float]) -> Floats:
    """[i, j]: largest of rows i..j, for i <= j."""
    table = np.tile(np.asarray(rows, np.float64), (len(rows), 1))
    return np.maximum.accumulate(np.triu(table), axis=1)


def shared_bytes(costs: Sequence[LayerCost], shared: Shared) -> Floats:
    """[earlier, later layer]: bytes of the arguments that both read."""
    found = np.zeros((len(costs), len(costs)))
    for layer, own in enumerate(shared):
        for earlier, argument in own:
            found[earlier, layer] += costs[layer].argument_bytes[argument]
    return found


class Ranges(NamedTuple):
    """Of all ranges of layers, [first, last layer].

    Attributes:
        seconds: of one microbatch.
        state, stash, body, update: bytes held all the time, for each microbatch in flight, at most
            beside these in a microbatch, and at most while none is in flight: before the first, and
            in the update.
    """

    seconds: Floats
    state: Floats
    stash: Floats
    body: Floats
    update: Floats

    @classmethod
    def of(cls, costs: Sequence[LayerCost], count: int, shared: Shared) -> "Ranges":
        """In `count` microbatches; arguments in `shared` (see `Layers`) count once."""
        memory = [c.memory for c in costs]
        # Of i..j: what two of them share, so the earlier is i or later and the later j or earlier.
        twice = np.cumsum(np.cumsum(shared_bytes(costs, shared)[::-1], axis=0)[::-1], axis=1)
        received = np.array([m.received_bytes for m in memory])
        return cls(
            prefix_sums([c.forward_s + c.backward_s + c.once_s / count for c in costs]),
            prefix_sums([m.state_bytes for m in memory]) - twice,
            prefix_sums([m.stash_bytes for m in memory]) + received[:, None],
            range_maxima([m.body_bytes for m in memory]),
            np.maximum(
                range_maxima([m.before_bytes for m in memory]),
                prefix_sums([m.next_bytes for m in memory])
                + range_maxima([m.update_bytes for m in memory]),
            ),
        )

    def peaks(self, held: int) -> Floats:
        """Peak bytes with `held` microbatches in flight."""
        return np.asarray(self.state + np.maximum(held * self.stash + self.body, self.update))

    def moved(self, held: int, limit: int) -> Floats:
        """Bytes of each microbatch that must wait on the host for a range to fit; 0 if nothing
        must, inf if moving cannot make it fit. The stash of `RESIDENT` microbatches stays."""
        over = self.peaks(held) - limit
        each = np.where(self.peaks(RESIDENT) <= limit, over / max(held - RESIDENT, 1), np.inf)
        return np.asarray(np.where(over <= 0.0, 0.0, each))


def mixed_s(
    limit: int, looser_s: Floats, looser_peak: Floats, seconds: Floats, peak: Floats
) -> Floats:
    """Seconds of stages in which as many layers as possible use a faster point, and the others one
    that fits; inf if that does not fit. Peaks interpolate linearly, because they are sums and
    maxima over layers."""
    apart = np.maximum(looser_peak - peak, 1.0)
    share = np.clip((limit - peak) / apart, 0.0, 1.0)
    fits = np.isfinite(seconds)
    return np.where(fits, share * looser_s + (1 - share) * np.where(fits, seconds, 0.0), np.inf)
