"""Split loops that compute the gradients of both a stage's input and its weights."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.stages.backward_loops import next_loop_split
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import STAGE, function_kind, get_int
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.walk import functions, ops
from shardc.plan.function_kind import FunctionKind
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.fission import fission


@dataclass(frozen=True)
class SplitBackwardLoops(Pass):
    """Moves delayable work of the backward loops of scanned layers into loops after them.

    Each iteration of the backward of a scan computes the gradient of a layer's input, for the next
    iteration, and those of the layer's weights, which the loop does not use. Afterwards one loop
    computes the former and stashes values for a second loop, which computes the latter.
    What both need is stacked or made twice, whichever takes the device less time. A loop all of
    which the stage before waits for stays; so do those of the first stage, and loops whose values
    have shardings already. A second run changes nothing.

    Options:
        cluster: its device prices the choice; in text a built-in name, the path of a cluster
            file, or its JSON.
        stages: whose loops are taken apart; empty = all.
    """

    name = "shardc-split-backward-loops"
    never_refuses = "a loop that cannot be taken apart is left alone"

    cluster: Cluster = field(default=Cluster.parse("cpu8"), metadata=in_text(Cluster.parse))
    stages: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        model = CostModel(self.cluster)
        every = list(functions(module))
        for function in every:
            if function_kind(function) is not FunctionKind.BACKWARD:
                continue
            if self.stages and get_int(function, STAGE) not in self.stages:
                continue
            # Each loop once: what effects keep in a loop would be taken out for ever.
            for _ in [op for op in ops(function) if op.name == "stablehlo.while"]:
                split = next_loop_split(function, every, model)
                if split is None:
                    break
                fission(split.loop, split.counted, split.kept, split.late)
                drop_unused(function)
