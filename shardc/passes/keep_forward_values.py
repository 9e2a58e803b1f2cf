"""Have backward passes use forward values that the program computes again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop
from shardc.analysis.residency.recomputed import Recomputation, recomputations
from shardc.analysis.residency.selection import consistent, op_seconds, worth_keeping
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.errors import PlanError
from shardc.ir.attributes import (
    DIRECTION,
    KEPT,
    NUM_STAGES,
    PHASE,
    STAGE,
    data_attr,
    get_int,
)
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.walk import defining_op, main_function, where
from shardc.plan.decisions import ValuePlan
from shardc.plan.shape import PRICES
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.stacks import read_stacks, with_stacks

type StageValue = tuple[int, str]
"""A stage, and a value in it as in `ValuePlan.value`."""


def _read_values(text: str) -> tuple[StageValue, ...]:
    found = []
    for each in text.split(";"):
        stage, _, value = each.partition(":")
        if not stage.isdecimal() or not value:
            raise PlanError(
                f"'{each}' is not a value of a stage",
                help="write `stage:value`, such as 0:12.tanh1",
            )
        found.append((int(stage), value))
    return tuple(found)


def _print_values(values: Sequence[StageValue]) -> str:
    return ";".join(f"{stage}:{value}" for stage, value in values)


@dataclass(frozen=True)
class KeepForwardValues(Pass):
    """Replaces values that a backward pass computes again by those that the forward pass computed.

    Works on a staged @main, before shardc-plan-residency. The backward passes of programs with
    `jax.checkpoint` compute forward values again; here a stage takes some of them from its forward
    pass, which then stashes them, and the ops that only led to them go. A value of a loop over
    layers becomes a stack with a row per layer: the forward loop writes it, the backward loop
    reads it. Both are the same computation of the same values (`shardc.analysis.residency`), and
    no comparison mixes a kept value with one that is computed again.

    Afterwards the module's `shardc.kept` lists for each stage what is kept, and what would be at
    the lowest price.

        forward loop:  %y = dot %x, %w              forward loop:  %y = dot %x, %w
                                                                   write %y to row i of %ys
        backward loop: %x = row of %xs    becomes   backward loop: %y' = row of %ys
                       %y' = dot %x, %w                            use %y'
                       use %y'

    Options:
        prices: for each stage the price of keeping a value, relative to the time in which the
            device writes and reads it: what takes longer to compute again is kept, by the exact
            minimum. 0: the stage does as the program says. Empty: every stage does.
        values: instead, the values that are kept: the stage of each, and its `ValuePlan.value`; in
            text `0:12.tanh1;1:14`.
        cluster: its device says what computing again takes; in text a built-in name, the path of a
            cluster file, or its JSON.
    """

    name = "shardc-keep-forward-values"

    prices: tuple[float, ...] = ()
    values: tuple[StageValue, ...] = field(
        default=(), metadata=in_text(_read_values, _print_values)
    )
    cluster: Cluster = field(default=Cluster.parse("cpu8"), metadata=in_text(Cluster.parse))

    def apply(self, module: ir.Operation) -> None:
        stages = get_int(module, NUM_STAGES) or 1
        if self.prices and len(self.prices) != stages:
            raise PlanError(
                f"there are {len(self.prices)} prices, but {stages} stages",
                help="give one price for each stage, 0 for one that does as the program says",
            )
        asked: dict[int, set[str]] = {}
        for stage, value in self.values:
            asked.setdefault(stage, set()).add(value)
        if not (any(self.prices) or asked):
            return
        main = main_function(module)
        model = CostModel(self.cluster)
        plans: list[list[ValuePlan]] = [[] for _ in range(stages)]
        chosen: list[tuple[Recomputation, set[ir.Value]]] = []
        for found in recomputations(main):
            kept = set()
            if asked:
                kept = _asked_of(found, asked.get(found.stage, set()))
            elif self.prices[found.stage] > 0.0:
                kept = worth_keeping(found, self.prices[found.stage], model)
            if kept:
                chosen.append((found, kept))
            plans[found.stage] += _plans(found, kept, model)
        _check_all_found(asked, plans)
        if chosen:
            _keep(chosen)
            drop_unused(main)
            module.attributes[KEPT] = data_attr(plans)


def _asked_of(found: Recomputation, names: Collection[str]) -> set[ir.Value]:
    """The values with these names among those that a block computes again."""
    kept = {value for value, each in found.originals.items() if each.name in names}
    if kept and consistent(found, kept) != kept:
        raise PlanError(
            f"of what the backward pass of stage {found.stage} compares, some values are to be kept"
            f" and others are not: {', '.join(sorted(names))}",
            help="keep all values that it compares, or none",
        )
    return kept


def _check_all_found(asked: dict[int, set[str]], plans: Sequence[Sequence[ValuePlan]]) -> None:
    for stage, values in asked.items():
        known = (
            {each.value for each in plans[stage] if each.residency == "keep"}
            if stage < len(plans)
            else set()
        )
        for value in sorted(values - known):
            raise PlanError(
                f"stage {stage} is to keep the value {value}, which its backward pass does not"
                " compute again",
                help="this plan was made for another program: plan again",
            )


def _plans(found: Recomputation, kept: set[ir.Value], model: CostModel) -> list[ValuePlan]:
    """What a plan says of the values that are kept or worth it, in the order of the program."""
    times = found.loop.counted.trips if found.loop else 1
    worth = kept | worth_keeping(found, PRICES["none"], model)
    plans = []
    for op in found.again:
        for value in op.results:
            if value in worth:
                original = found.originals[value]
                plans.append(
                    ValuePlan(
                        original.name,
                        "keep" if value in kept else "recompute",
                        op.name,
                        where(op),
                        original.num_bytes,
                        times * op_seconds(op, model),
                    )
                )
    return plans


def _keep(chosen: Sequence[tuple[Recomputation, set[ir.Value]]]) -> None:
    """Replaces what backward passes compute again by what the forward pass has computed."""
    reads: dict[ir.Operation, list[_Read]] = {}  # by forward loop
    for found, kept in chosen:
        for value in (value for value in found.originals if value in kept):  # in order
            original = found.originals[value].value
            if found.loop is None:
                value.replace_all_uses_with(original)
            else:
                loop = _loop_around(original)
                read = _Read(found.sources[loop], original, found.loop, value)
                reads.setdefault(loop, []).append(read)
    for own in list(reads.values()):
        _stack(own)


class _Read(NamedTuple):
    """A value of a backward loop's body, and the forward loop and value that it is read from."""

    source: RowLoop
    original: ir.Value
    loop: RowLoop
    value: ir.Value


def _stack(reads: Sequence[_Read]) -> None:
    """Has one forward loop write, and backward loops read, stacks of forward values."""
    source = reads[0].source
    originals = list(dict.fromkeys(read.original for read in reads))
    before = len(source.loop.results)
    stacking = with_stacks(source.loop, source.counted, originals, source.forwards)
    for op in map(defining_op, list(stacking.operands)[before:]):
        assert op is not None, "a stack starts from zeros"
        for name in (STAGE, PHASE, DIRECTION):
            op.attributes[name] = stacking.attributes[name]
    stacks = dict(zip(originals, list(stacking.results)[before:], strict=True))
    for reader in {read.loop.loop: read.loop for read in reads}.values():
        own = [read for read in reads if read.loop is reader]
        read_stacks(
            reader.loop,
            reader.counted,
            [read.value for read in own],
            [stacks[read.original] for read in own],
            reader.forwards,
        )


def _loop_around(value: ir.Value) -> ir.Operation:
    op = defining_op(value)
    assert op is not None and op.parent is not None, "an op of a loop's body makes the value"
    return op.parent.operation
