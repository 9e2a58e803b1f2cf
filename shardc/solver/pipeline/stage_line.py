"""The layers and devices that pipeline stages share out, in a row."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from shardc.solver.problem.problem import Floats


@dataclass(frozen=True)
class Place:
    """A range of devices that a stage may use.

    Attributes:
        size: number of devices of the stage.
        first, end: the stage uses devices among first .. end - 1, which are of one kind.
        host: devices of a host, counted from `first`: a submesh that fits into a host never
            straddles two, and a larger one starts at a host.
    """

    size: int
    first: int
    end: int
    host: int = 1


INSIDE, HOST, END = 0, 1, 2  # a stage's devices end inside a host, with a host, or with `end`


@dataclass(frozen=True)
class Line:
    """The layers and devices in a row, and the costs of their stages.

    Attributes:
        num_layers, num_devices: both are used up, in order.
        places: the possible places of a stage.
        num_microbatches: that pass each stage.
        stage_s: (place, microbatches in flight) -> [first layer, last layer] seconds of a
            microbatch, forward and backward; inf: it does not fit.
        send_s: (place, the next stage's, `INSIDE`, `HOST` or `END`) -> per last layer, the seconds
            to send a microbatch to the next stage and its gradient back.
        link_s: like `send_s`, the seconds that the busiest way in or out needs for each microbatch.
        in_flight: number of later stages -> the most microbatches that a stage holds.
    """

    num_layers: int
    num_devices: int
    places: tuple[Place, ...]
    num_microbatches: int
    stage_s: Callable[[int, int], Floats]
    send_s: Callable[[int, int, int], Floats]
    link_s: Callable[[int, int, int], Floats]
    in_flight: Callable[[int], int]

    def periods(self, behind: int) -> float:
        """The periods that a round trip of a microbatch, from a stage with `behind` later ones to
        the last one and back, may last. A microbatch waits for the one whose place it takes, so the
        last one of n, k of them in flight, ends (n - k) / k round trips behind the first."""
        held, count = self.in_flight(behind), self.num_microbatches
        return held * (count - 1) / (count - held) if held < count else math.inf
