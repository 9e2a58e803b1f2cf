"""Write the shardings of a saved plan into the module."""

from dataclasses import dataclass

import msgspec
from jax.extend.mlir import ir

from shardc.cluster import Cluster
from shardc.errors import PlanError
from shardc.ir.attributes import CLUSTER, data_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, symbol
from shardc.plan.decisions import FunctionSharding
from shardc.rewrite.local.planned_shardings import write_shardings


@dataclass(frozen=True)
class ApplyShardings(Pass):
    """Writes the same attributes as shardc-plan-shardings, from earlier decisions.

    Options:
        shardings: JSON of `Plan.shardings`: function name -> its FunctionSharding.
        cluster: JSON of the cluster whose links priced the plan's reshards.
    """

    name = "shardc-apply-shardings"

    shardings: str = "{}"
    cluster: str = ""

    def apply(self, module: ir.Operation) -> None:
        try:
            planned = msgspec.json.decode(self.shardings, type=dict[str, FunctionSharding])
        except msgspec.MsgspecError as error:
            raise PlanError(
                f"the shardings are not those of a plan: {error}", help="plan again"
            ) from error
        if self.cluster:
            module.attributes[CLUSTER] = data_attr(Cluster.parse(self.cluster))
        for function in functions(module):
            name = symbol(function)
            if name not in planned:
                raise PlanError(
                    f"the plan has no shardings for @{name}",
                    help="plan again: this plan was made for another version of the program",
                )
            write_shardings(function, planned[name])
