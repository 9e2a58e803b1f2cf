"""Find the batches of a step, once for every number of microbatches."""

from collections.abc import Mapping
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import batch_analysis, with_dims
from shardc.ir.attributes import BATCH_AXIS, arg_attrs, set_arg_attrs
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import main_function


@dataclass(frozen=True)
class FindBatch(Pass):
    """Marks the arguments that hold a batch with `shardc.batch_axis = [batch, dim, parts]`.

    Microbatches cut batch 0. Every possible number of them divides its `parts`, which are 0 if the
    step as it is written cannot be split, or if the dims were given, so nothing was analysed. Other
    batches meet it only in sums, and are cut too if that number divides their `parts`. The pieces
    of an argument (rows for cut loops) keep the mark, and `shardc-split-microbatches` does not
    search again. A step without a batch, or with marks, is left alone.

    Attributes:
        batch_args: positions of the batch arguments; empty: found by analysis.
        batch_dims: the batch dim of each of `batch_args`; empty: found by analysis.
    """

    name = "shardc-find-batch"
    batch_args: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        attrs = arg_attrs(function)
        if any(BATCH_AXIS in each for each in attrs):
            return
        batches: list[tuple[Mapping[int, int], int]] = []
        if self.batch_dims:
            batches = [(with_dims(module, self.batch_args, self.batch_dims), 0)]
        else:
            facts = batch_analysis(module, self.batch_args or None)
            if (found := facts.partition) is not None:
                parts = facts.parts if facts.obstacle is None else 0
                batches = [(found.flow.batch_args, parts), *found.others]
        for number, (dims, parts) in enumerate(batches):
            for a, dim in dims.items():
                attrs[a][BATCH_AXIS] = ir.DenseI64ArrayAttr.get([number, dim, parts])
        set_arg_attrs(function, attrs)
