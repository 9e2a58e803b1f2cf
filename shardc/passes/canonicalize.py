"""Fold and simplify with StableHLO's own patterns."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_registered


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Runs MLIR's `canonicalize`: dead ops, identities and small constants disappear."""

    name = "shardc-canonicalize"
    never_refuses = "simplifying a valid module cannot fail"

    def apply(self, module: ir.Operation) -> None:
        run_registered(module, "canonicalize")
