"""The cost of a microbatch that does not depend on its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from shardc.analysis.residency.fixed_values import FixedValues
from shardc.analysis.shardings.planned_reshards import PlannedReshard, PlannedReshards
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cost.model import CostModel
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Collective
from shardc.plan.priced_work import Work


class FixedSeconds(NamedTuple):
    """Seconds of each microbatch that do not depend on its rows, without those to start kernels and
    collectives.

    Attributes:
        of_kind: by kind of function, on each device.
        ideal_s: on one device, if all work were split evenly.
    """

    of_kind: dict[FunctionKind, float]
    ideal_s: float


@dataclass
class FixedCosts:
    """Finds them for solved layers on one mesh.

    Args:
        values: of each function.
    """

    values: Mapping[str, FixedValues]
    model: CostModel
    mesh: Mesh

    def of(
        self, built: StageProblem, choice: Sequence[int], reshards: PlannedReshards
    ) -> FixedSeconds:
        """Of one layer under its choice of strategies."""
        of_kind: dict[FunctionKind, float] = {}
        ideal_s = 0.0
        fixed: dict[int, tuple[bool, ...]] = {
            node: (node not in built.copied,) for node in built.value_nodes.values()
        }
        for name, nodes_of_ops in built.op_nodes.items():
            kind, calls = built.function_kinds[name], built.function_repeats[name]
            values, options = self.values[name], built.op_strategies[name]
            for op, nodes in enumerate(nodes_of_ops if kind.per_microbatch else ()):
                share, results = values.shares[op], values.results[op]
                for at, (node, strategies) in enumerate(zip(nodes, options[op], strict=True)):
                    # Barriers and control flow have a node for each result.
                    fixed[node] = results if len(nodes) == 1 else results[at : at + 1]
                    works, repeats = built.node_works[node]
                    own_s, whole_s = self._op_s(works[choice[node]], share) if works else (0.0, 0.0)
                    if own_s:
                        of_kind[kind] = of_kind.get(kind, 0.0) + own_s * repeats / calls
                        costs = built.problem.costs[node].tolist()
                        split = zip(costs, strategies, strict=True)
                        least_s = min(cost * each.num_shards for cost, each in split)
                        ideal_s += least_s / calls * own_s / whole_s
        for each in reshards.reshards:
            name, position = each.info.function, each.info.position
            kind, known = built.function_kinds[name], fixed.get(each.source, ())
            if kind.per_microbatch and position < len(known) and known[position]:
                calls = built.function_repeats[name]
                seconds = self._reshard_s(each) * each.info.repeats / calls
                of_kind[kind] = of_kind.get(kind, 0.0) + seconds
        return FixedSeconds(of_kind, ideal_s)

    def _op_s(self, work: Work, share: float) -> tuple[float, float]:
        """Seconds of an op with this share of its bytes in fixed values, without launches: those
        that do not depend on the rows, and all. The difference to the seconds for twice the rows
        depends on them."""
        if not share:
            return 0.0, 0.0
        once = msgspec.structs.replace(work, launches=0.0)
        now_s = self.model.op_s(once)
        if share == 1.0:
            return now_s, now_s
        more = msgspec.structs.replace(
            once, flops=2.0 * work.flops, num_bytes=(2.0 - share) * work.num_bytes
        )
        return max(2.0 * now_s - self.model.op_s(more), 0.0), now_s

    def _reshard_s(self, each: PlannedReshard) -> float:
        """Seconds of a reshard, without those to start its collectives."""
        started = [
            Collective(step.kind, step.axes, each.info.dtype, 0, 1)
            for step in each.found.steps
            if step.kind != "all_slice"
        ]
        return max(each.found.seconds - self.model.sent_s(started, self.mesh), 0.0)
