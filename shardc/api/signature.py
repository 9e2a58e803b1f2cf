"""The arguments and results of a traced function, in the terms of `jax.stages`."""

from typing import Any

import jax

from shardc.importer.program import Imported
from shardc.ir.walk import symbol


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
        taken = len(self._imported.arguments)
        return f"{name}: {taken} array{'s' * (taken != 1)} in, {len(self._imported.results)} out"
