"""Remove dead ops and bring constants out of regions."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_registered


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Runs MLIR's `canonicalize`: dead ops disappear, constants move out of loops and branches.

    The StableHLO of the wheel folds no more than that. A second run changes nothing.
    """

    name = "shardc-canonicalize"
    never_refuses = "simplifying a valid module cannot fail"

    def apply(self, module: ir.Operation) -> None:
        run_registered(module, "canonicalize")
