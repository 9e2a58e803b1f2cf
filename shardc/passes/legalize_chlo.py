"""Lower CHLO ops to StableHLO."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_registered


@dataclass(frozen=True)
class LegalizeChlo(Pass):
    """Lowers `chlo` ops (erf_inv, top_k, asin ...) to StableHLO ops, which have sharding rules.

    Wraps MLIR's `chlo-legalize-to-stablehlo`. A CHLO op without a lowering stays and is replicated
    later. A second run changes nothing.
    """

    name = "shardc-legalize-chlo"
    never_refuses = "an op without an expansion is left alone"

    def apply(self, module: ir.Operation) -> None:
        run_registered(module, "func.func(chlo-legalize-to-stablehlo)")
