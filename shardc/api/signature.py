"""The arguments and results of a traced function, in the terms of `jax.stages`."""

from typing import Any

import jax

from shardc.importer.program import Imported
from shardc.ir.walk import symbol
from shardc.plan.decisions import Plan


class Signature:
    """The common part of Lowered, Planned and Compiled.

    Attributes:
        in_tree: of `(args, kwargs)`, without the static arguments.
        out_tree: of the results.
        args_info: a pytree like `(args, kwargs)` of `jax.stages.ArgInfo`: shape, dtype, donated.
        out_info: a pytree like the results, of objects with shape and dtype.
    """

    def __init__(self, imported: Imported) -> None:
        assert imported.in_tree is not None and imported.out_tree is not None
        self._imported = imported
        self.in_tree: jax.tree_util.PyTreeDef = imported.in_tree
        self.out_tree: jax.tree_util.PyTreeDef = imported.out_tree
        self.args_info: Any = imported.args_info
        self.out_info: Any = imported.out_info

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Flat positions of the donated arguments."""
        return tuple(i for i, each in enumerate(self._imported.arguments) if each.donated)

    def _signature(self) -> str:
        module = self._imported.module
        with module.context:
            name = symbol(module.operation).removeprefix("jit_")
        return (
            f"{name}: {_count(len(self._imported.arguments), 'array')} in,"
            f" {len(self._imported.results)} out"
        )


def printed_plan(plan: Plan) -> str:
    """`2 stages of 4 devices, 8 microbatches (1f1b), predicted 1.3 ms and 15.8 MiB per device`."""
    sizes = [len(stage.mesh.device_ids) for stage in plan.stages]
    devices = "+".join(map(str, sizes)) if len(set(sizes)) > 1 else str(sizes[0])
    return (
        f"{_count(plan.num_stages, 'stage')} of {devices} devices,"
        f" {_count(plan.num_microbatches, 'microbatch', 'es')} ({plan.schedule}), predicted"
        f" {1e3 * plan.predicted.step_time_s:.3g} ms and"
        f" {plan.predicted.peak_bytes_per_device / 2**20:.3g} MiB per device"
    )


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural * (number != 1)}"
