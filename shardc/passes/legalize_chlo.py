"""Write CHLO ops in StableHLO."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_registered


@dataclass(frozen=True)
class LegalizeChlo(Pass):
    """Expands `chlo` ops (erf_inv, top_k, asin ...) into StableHLO, which sharding rules know.

    Wraps MLIR's `chlo-legalize-to-stablehlo`. A CHLO op without an expansion stays as it is and
    is replicated later. A second run changes nothing.
    """

    name = "shardc-legalize-chlo"
    never_refuses = "an op without an expansion is left alone"

    def apply(self, module: ir.Operation) -> None:
        run_registered(module, "func.func(chlo-legalize-to-stablehlo)")
