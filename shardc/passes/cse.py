"""Compute equal values once."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass, run_registered


@dataclass(frozen=True)
class Cse(Pass):
    """Runs MLIR's `cse`: merges equal ops without side effects into the first.

    Recomputation by `jax.checkpoint` survives: its operands pass an `optimization_barrier`.
    """

    name = "shardc-cse"
    never_refuses = "merging equal ops of a valid module cannot fail"

    def apply(self, module: ir.Operation) -> None:
        run_registered(module, "cse")
