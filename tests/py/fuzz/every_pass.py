"""A program through every pass there is, the module before and after each compared."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from unittest import mock

from jax.extend.mlir import ir

from shardc import compiler
from shardc.check.child import Outcome
from shardc.check.each_pass import EachPass, PassCheck
from shardc.check.values import Kind
from shardc.errors import MicrobatchError, StageError
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import Pass, run_passes
from shardc.passes import plan_shardings
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.annotate_for_xla import AnnotateForXla
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.ask_shardings import AskShardings
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.cast_parameters_once import CastParametersOnce
from shardc.passes.cut_loops import CutLoops
from shardc.passes.find_batch import FindBatch
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.gather_parameters import GatherParameters
from shardc.passes.join_pieces import JoinPieces
from shardc.passes.keep_forward_values import KeepForwardValues
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import LOCAL_LOWERING, NORMALIZE
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.passes.unroll_layers import UnrollLayers
from shardc.passes.widen_floats import WidenFloats
from shardc.plan.layout import Mesh
from shardc.planner.layer_samples import even_loop_cuts
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

KEEP_ALMOST_ALL = 1e-3  # price of keeping a value that is computed again
Evaluate = Callable[[ir.Module, dict[str, list[Any]]], Outcome]


@dataclass(frozen=True)
class Refused(PassCheck):
    """A pass that cannot be applied to the program, and why."""

    why: str = ""

    @property
    def outcome(self) -> str:
        """Always "refused"."""
        return "refused"

    def __str__(self) -> str:
        return f"{self.name}: refused: {self.why}"


def check_every_pass(
    module: ir.Module,
    evaluate: Evaluate,
    *,
    stages: int = 2,
    microbatches: int = 2,
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    seed: int = 0,
    inputs: Sequence[tuple[Kind, int]] = (("ordinary", 0), ("extremes", 1)),
    compared: Collection[str] = (),
) -> Iterator[PassCheck]:
    """Brings `module` all the way to programs of devices, in place, and says what each pass did.

    Where microbatches or stages are refused, one takes their place. Passes that only some schedules
    need are skipped where they refuse the program, and give a `Refused`.

    Args:
        batch: flat arguments that are the batch, and their dims; found by analysis if empty.
        compared: names of passes; the others run unchecked. Empty: all are compared.
    """

    def run(target: ir.Module, passes: Sequence[Pass]) -> Iterator[PassCheck]:
        with mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
            groups = groupby(passes, lambda each: not compared or each.name in compared)
            for is_compared, group in groups:
                if is_compared:
                    yield from EachPass(evaluate, inputs).run(target, list(group))
                else:
                    run_passes(target, list(group))

    def aside(each: Pass) -> Iterator[PassCheck]:
        """On a copy, which nothing follows."""
        if not compared or each.name in compared:
            yield from run(copy_module(module), [each])

    def unless_refused(target: ir.Module, each: Pass) -> Iterator[PassCheck]:
        why = _refusal(target, each)
        yield from [Refused(each.name, why=why)] if why else run(target, [each])

    yield from run(module, NORMALIZE)
    yield from aside(WidenFloats())
    yield from run(module, [FindBatch(*batch), CastParametersOnce(), FissionLoops(*batch)])
    yield from aside(JoinPieces(0, *batch))
    yield from run(module, [CutLoops(even_loop_cuts(module, stages))])
    splits = SplitMicrobatches(microbatches, *batch), SplitMicrobatches(1)
    split = splits[1] if _refusal(module, splits[0]) else splits[0]
    yield from run(module, [split])
    plans = PlanStages(stages=stages), PlanStages(stages=1)
    wanted = plans[1] if _refusal(module, plans[0]) else plans[0]
    keep = KeepForwardValues((KEEP_ALMOST_ALL,) * wanted.stages, (), CLUSTER)
    yield from run(module, [wanted, keep, PlanResidency((2,) * wanted.stages)])
    sliced = copy_module(module)
    run_passes(sliced, [OutlineStages(accumulate=True)])
    yield from run(sliced, [UnrollLayers()])
    yield from unless_refused(sliced, SliceTokens(2))
    yield from run(module, [OutlineStages()])
    yield from run(module, [SplitBackwardLoops(CLUSTER)])
    yield from unless_refused(module, SplitBackward(CLUSTER))
    yield from unless_refused(copy_module(module), ReplicateStages())
    yield from aside(GatherParameters("x", (2,) * wanted.stages))
    yield from run(module, [AccumulateInLoops(), ShareReshards()])
    meshes = tuple(
        Mesh((("x", 2), ("y", 2)), tuple(range(4 * s, 4 * s + 4))) for s in range(wanted.stages)
    )
    yield from run(module, [AssignMeshes(meshes), AskShardings()])
    unplanned = copy_module(module)
    yield from run(module, [PlanShardings(cluster=CLUSTER)])
    planned = compiler.shardings_of(module)
    yield from run(unplanned, [ApplyShardings(planned, CLUSTER)])
    yield from aside(AnnotateForXla())
    yield from run(module, LOCAL_LOWERING)


def _refusal(module: ir.Module, each: Pass) -> str:
    """Why a pass cannot be applied to the module; "" if it can."""
    try:
        run_passes(copy_module(module), [each])
    except (MicrobatchError, StageError) as error:
        return f"{error.code}: {error.message}"
    return ""
