"""Split a step over the whole batch into a body that runs once per microbatch, and the rest."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import StepSplit, split_step, why_several_sweeps
from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal, uneven_parts
from shardc.analysis.program.arguments import ALIASING
from shardc.analysis.residency.between_sweeps import kept_between_sweeps
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import (
    BATCH_AXIS,
    BATCH_DIM,
    KEPT_BETWEEN,
    NUM_MICROBATCHES,
    SHARDING,
    STATE_RESULT,
    SWEEPS,
    arg_attrs,
    data_attr,
    int_attr,
    set_arg_attrs,
    str_attr,
)
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.tensor_types import num_bytes
from shardc.ir.user_shardings import read_user_sharding, user_sharding_attr
from shardc.ir.walk import main_function
from shardc.plan.shape import KeptBetween
from shardc.rewrite.calls.specialize_calls import fit_calls
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.microbatches.step_phases import write_phases


@dataclass(frozen=True)
class SplitMicrobatches(Pass):
    """Splits the main function into phases before, during and after `count` microbatches.

    Every op gets `shardc.phase`: "before" and "after" run once per step on whole values, "body"
    runs once per microbatch on parts of the batch. A batch argument becomes
    [.., count, size / count, ..] and is read at `shardc.microbatch_index`; values leave the body
    through `shardc.accumulate`, which sums or concatenates them. The results are those of the whole
    batch, up to the order of additions. If the body waits for sums that heavy work computes from
    the whole batch (the load of experts in a loss), an earlier sweep, a loop over the microbatches,
    accumulates these. Later sweeps compute again what they need of earlier ones, or read what
    these have kept of all microbatches. A module that is already split is left alone.

    One microbatch is always possible. If a step cannot be cut (batch normalisation), its body holds
    all matrix products and everything that they depend on, on whole values, and each accumulation
    has one addend.

    Attributes:
        count: number of microbatches; must divide the batch dims.
        batch_args: positions of the batch arguments; empty: found by analysis.
        batch_dims: the batch dim of each of `batch_args`; empty: found by analysis.
        keep_price: of keeping a value between sweeps, relative to the time in which the device
            writes and reads it: what takes longer to compute again is kept. 0: nothing is kept.
        cluster: its device says what computing again takes; in text a built-in name, the path of a
            cluster file, or its JSON.
        step: the analysis, if the caller has it; the caller then checks the result with
            `uneven_parts`, and the pass refuses nothing.
    """

    name = "shardc-split-microbatches"
    count: int = 1
    batch_args: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()
    keep_price: float = 0.0
    cluster: Cluster = field(default=Cluster.parse("cpu8"), metadata=in_text(Cluster.parse))
    step: StepSplit | None = field(default=None, repr=False, compare=False)

    def ask(self, module: ir.Operation) -> StepSplit | MicrobatchRefusal:
        """The analysis for rewriting a module, or why the pass refuses it."""
        return split_step(module, self.count, self.batch_args or None, self.batch_dims or None)

    def apply(self, module: ir.Operation) -> None:
        if NUM_MICROBATCHES in module.attributes:
            return
        step = self.step or self.ask(module)
        if isinstance(step, MicrobatchRefusal):
            raise step.error()
        numbers = step.flow.numbers  # read off values that the rewrite erases
        function = main_function(module)
        module.attributes[NUM_MICROBATCHES] = int_attr(self.count)
        why = why_several_sweeps(step.flow)
        if why is not None:
            module.attributes[SWEEPS] = str_attr(why)
        kept: dict[int, int] = {}
        if self.keep_price > 0.0:
            kept = kept_between_sweeps(step.flow, self.keep_price, CostModel(self.cluster))
        if kept:
            values = [step.flow.program.graph.values[v] for v in kept]
            total = KeptBetween(self.keep_price, len(kept), sum(map(num_bytes, values)))
            module.attributes[KEPT_BETWEEN] = data_attr(total)
        write_phases(function, step.flow, self.count, kept)
        drop_unused(function)  # a loop that runs before the microbatches makes fewer results there
        fit_calls(module)
        attrs = arg_attrs(function)
        for each in attrs:
            each.pop(BATCH_AXIS, None)
        for arg, result in step.state.items():
            attrs[arg][STATE_RESULT] = int_attr(result)
        for arg, dim in step.flow.batch_args.items():
            attrs[arg][BATCH_DIM] = int_attr(dim)
            attrs[arg].pop(STATE_RESULT, None)
            attrs[arg].pop(ALIASING, None)  # the microbatches have another type than any result
            if SHARDING in attrs[arg]:
                attrs[arg][SHARDING] = user_sharding_attr(
                    read_user_sharding(attrs[arg][SHARDING]).with_dim(dim)
                )
        set_arg_attrs(function, attrs)
        uneven = None if self.step else uneven_parts(module, numbers)
        if uneven is not None:
            raise uneven.error()
