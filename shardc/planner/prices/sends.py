"""What is sent at the cuts between layers, and how long that keeps links busy.

The search's view; the simulator gives each transfer its ports (`shardc.planner.schedules.ports`).
"""

from dataclasses import dataclass
from typing import NamedTuple

from shardc.backend.extract import function_values
from shardc.cost.model import CostModel
from shardc.ir.context import Module
from shardc.plan.layout import Mesh
from shardc.solver.problem.problem import Floats


class Sent(NamedTuple):
    """Bytes of whole values of one microbatch at a cut, in one direction.

    A value that skips layers is sent past them, so the two differ.

    Attributes:
        first, last: sent or received by the layer before the cut, and by the one behind it.
    """

    first: int
    last: int


class Crossing(NamedTuple):
    """Seconds of one microbatch at the cut behind each layer.

    Attributes:
        trip_s: to the next stage, and of the gradients back.
        shared_s: of the busiest way in or out of a stage that has such neighbours on both sides:
            activations of one share it with gradients of the other.
        alone_s: the same of a stage that has one.
    """

    trip_s: Floats
    shared_s: Floats
    alone_s: Floats


@dataclass(frozen=True)
class Sends:
    """What is sent after each sample: activations ahead, and gradients back."""

    ahead: tuple[Sent, ...]
    back: tuple[Sent, ...]

    def seconds(
        self, model: CostModel, source: Mesh, target: Mesh, ratio: float = 1.0
    ) -> list[tuple[float, float, float]]:
        """The parts of a `Crossing` between two meshes, for microbatches `ratio` times as large."""
        there, back_again = model.on(source), model.on(target)
        found = []
        for ahead, back in zip(self.ahead, self.back, strict=True):
            out_s, in_s = (there.transfer_s(source, target, int(n * ratio)) for n in ahead)
            home_s, from_s = (back_again.transfer_s(target, source, int(n * ratio)) for n in back)
            trip_s = max(out_s, in_s) + max(home_s, from_s)
            # A stage in the middle sends activations where the next one sends gradients.
            shared_s = max(out_s + from_s, in_s + home_s)
            found.append((trip_s, shared_s, max(out_s, in_s, home_s, from_s)))
        return found


def takes_turns(size: int, after: int, crosses: bool, per_node: int) -> bool:
    """Whether what crosses between two of at least three stages takes turns with what crosses
    between one of them and its other neighbour: activations come into a stage on the way on which
    gradients do, if both come from other nodes, or neither does.

    Args:
        size, after: devices of the stage before and of the one behind.
        crosses: they are on different nodes.
    """
    return max(size, after) >= per_node if crosses else size + after != per_node


def sends_of(outlined: Module, num_samples: int) -> Sends:
    """What the samples, as stages of an outlined module, send each other."""
    # [direction, cut]: bytes of the stage before and of the one behind.
    sent = [[[0, 0] for _ in range(num_samples)] for _ in range(2)]
    counted: set[tuple[int, str]] = set()
    values = function_values(outlined)
    made = {
        spec.value: (stage, spec.num_bytes)
        for stage, _, _, _, results in values
        for spec in results
        if spec.per_microbatch
    }
    for stage, _, _, args, _ in values:
        for spec in args:
            if spec.value not in made or (stage, spec.value) in counted:
                continue
            counted.add((stage, spec.value))
            source, num_bytes = made[spec.value]
            if source != stage:
                cuts = sent[source > stage]
                cuts[min(source, stage)][0] += num_bytes
                cuts[max(source, stage) - 1][1] += num_bytes
    ahead, back = (tuple(Sent(*each) for each in cuts) for cuts in sent)
    return Sends(ahead, back)
