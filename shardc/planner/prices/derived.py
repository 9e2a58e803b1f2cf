"""Prices that are derived from others until a shape depends on them: for other numbers of
microbatches, and for layers that recompute more."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.program.op_work import op_seconds
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import STAGE, function_kind, get_int
from shardc.ir.context import Module
from shardc.ir.walk import functions
from shardc.plan.function_kind import FunctionKind
from shardc.planner.prices.layer_cost import LayerCost


@dataclass(frozen=True)
class More:
    """The effect of more recomputation on a layer, relative to less.

    Attributes:
        backward: of the seconds of its backward pass.
        kept: of the bytes that it keeps for that.
        forward: of the seconds of its forward pass, which writes them.
    """

    backward: float
    kept: float
    forward: float = 1.0

    def of(self, cost: LayerCost) -> LayerCost:
        """The cost of a layer with more recomputation, from that with less. It holds what it
        recomputes for one microbatch at a time."""
        memory = cost.memory
        stash = memory.stash_bytes * self.kept
        body = memory.body_bytes + memory.stash_bytes - stash
        memory = replace(memory, stash_bytes=stash, body_bytes=body)
        return replace(
            cost,
            forward_s=cost.forward_s * self.forward,
            backward_s=cost.backward_s * self.backward,
            memory=memory,
        )


@dataclass(frozen=True)
class Amounts:
    """Of a sample, on whole values and one device.

    Attributes:
        forward_s, backward_s: of its passes.
        kept_bytes: of one microbatch, for the backward pass.
    """

    forward_s: float
    backward_s: float
    kept_bytes: int

    def beside(self, less: "Amounts") -> More:
        """These amounts relative to those with less recomputation."""
        return More(
            self.backward_s / less.backward_s if less.backward_s else 1.0,
            self.kept_bytes / less.kept_bytes if less.kept_bytes else 1.0,
            self.forward_s / less.forward_s if less.forward_s else 1.0,
        )


def amounts(outlined: Module, num_samples: int, cluster: Cluster) -> list[Amounts]:
    """What each sample, a stage of an outlined module, computes and keeps."""
    model, kept = CostModel(cluster), [0] * num_samples
    passes = FunctionKind.FORWARD, FunctionKind.BACKWARD
    seconds = {kind: [0.0] * num_samples for kind in passes}
    with outlined.context:
        for each in functions(outlined.operation):
            kind = function_kind(each)
            if kind in seconds:
                own_s = sum(op_seconds(each, model, 1).values())
                seconds[kind][get_int(each, STAGE) or 0] += own_s
    for values in function_values(outlined):
        if values.kind is FunctionKind.BACKWARD:
            kept[values.stage] += sum(s.num_bytes for s in values.args if s.per_microbatch)
    return [Amounts(*each) for each in zip(*seconds.values(), kept, strict=True)]


def own_stash(outlined: Module, num_samples: int) -> list[int]:
    """Bytes of one microbatch that each sample, a stage of an outlined module, makes in its forward
    pass and reads in its backward one."""
    own = [0] * num_samples
    made: dict[str, tuple[int, int]] = {}  # value -> stage, bytes
    for each in function_values(outlined):
        if each.kind is FunctionKind.FORWARD:
            made |= {s.value: (each.stage, s.num_bytes) for s in each.results if s.per_microbatch}
    for stage, value in {
        (each.stage, spec.value)
        for each in function_values(outlined)
        if each.kind in (FunctionKind.BACKWARD, FunctionKind.WEIGHT)
        for spec in each.args
    }:
        maker, num_bytes = made.get(value, (-1, 0))
        own[stage] += num_bytes if maker == stage else 0
    return own


def shares(rows: int, count: int, devices: int) -> int:
    """How many of the devices of a stage can have rows of their own, if a batch of `rows` comes in
    `count` microbatches."""
    return math.gcd(max(rows // count, 1), devices)


def most_alike(known: Sequence[int], count: int, rows: int, devices: int) -> list[int]:
    """The known numbers of microbatches that say most about the cost in `count`.

    If microbatches leave devices without rows, a layer is split in other ways, and takes as long
    with fewer rows. So the numbers that count are those that give rows to as many devices; if there
    are none, those that give rows to more devices, which are faster; otherwise all.
    """
    wanted = shares(rows, count, devices)
    of_each = {each: shares(rows, each, devices) for each in known}
    equal = [each for each, own in of_each.items() if own == wanted]
    more = [each for each, own in of_each.items() if own % wanted == 0]
    return equal or more or list(known)


def interpolated(cost: Callable[[int], LayerCost], known: Sequence[int], count: int) -> LayerCost:
    """The cost in `count` microbatches, interpolated from the nearest known numbers of
    microbatches."""
    if count in known:
        return cost(count)
    near = sorted(known, key=lambda each: abs(math.log(each / count)))[:2]
    a = cost(near[0])
    if len(near) == 1:
        return a.scaled(near[0] / count)
    share = (1 / count - 1 / near[0]) / (1 / near[1] - 1 / near[0])
    return a.between(cost(near[1]), share)
