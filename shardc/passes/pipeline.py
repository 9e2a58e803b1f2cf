"""The order of the passes, each with its reason, and every pass by its name."""

from collections.abc import Iterable

from shardc.ir.pass_manager import Pass
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.adopt_shardings import AdoptShardings
from shardc.passes.annotate_for_xla import AnnotateForXla
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.ask_shardings import AskShardings
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.batch_indices import BatchIndices
from shardc.passes.canonicalize import Canonicalize
from shardc.passes.cast_parameters_once import CastParametersOnce
from shardc.passes.compare_one_copy import CompareOneCopy
from shardc.passes.cse import Cse
from shardc.passes.cut_loops import CutLoops
from shardc.passes.drop_collectives import DropCollectives
from shardc.passes.drop_placements import DropPlacements
from shardc.passes.find_batch import FindBatch
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.gather_parameters import GatherParameters
from shardc.passes.hide_loop_ends import HideLoopEnds
from shardc.passes.hoist_host_calls import HoistHostCalls
from shardc.passes.inline_calls import InlineCalls
from shardc.passes.insert_reshards import InsertReshards
from shardc.passes.join_pieces import JoinPieces
from shardc.passes.keep_forward_values import KeepForwardValues
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.localize import Localize
from shardc.passes.look_up_rows import LookUpRows
from shardc.passes.lower_collectives import LowerCollectives
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pin_layouts import PinLayouts
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.read_rows_in_place import ReadRowsInPlace
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.simplify_loops import SimplifyLoops
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.passes.strip_shardings import StripShardings
from shardc.passes.summarize_calls import SummarizeCalls
from shardc.passes.unroll_layers import UnrollLayers
from shardc.passes.widen_floats import WidenFloats

NORMALIZE: tuple[Pass, ...] = (
    # First, because every later pass reads one flat function; calls that stay are ops of it.
    InlineCalls(),
    # Right after, because what is printed is known once there are no calls, and has no place in a
    # program that is cut into parts.
    HoistHostCalls(),
    # Because a memory that a value is put into would be taken for an op without a rule.
    DropPlacements(),
    # Because what a device tells itself would be taken for communication that was planned.
    DropCollectives(),
    # Because a constraint on one device would stand between an op and its user as a barrier.
    StripShardings(),
    # After it, because only nontrivial shardings must agree on a mesh.
    AdoptShardings(),
    # Because CHLO ops have no sharding rules; their StableHLO lowerings do.
    LegalizeChlo(),
    # Because later passes know nothing about a value that a loop carries, even if it is invariant.
    SimplifyLoops(),
    # After it, because a table carried by a loop would not be recognized as a parameter; early,
    # because to every later pass the products would be the heaviest work of a step.
    LookUpRows(),
    # Because an op that indexes the batch by an iota would seem to need the whole batch.
    BatchIndices(),
    # After loops are simplified, because only then a stack is seen to come from outside; before
    # dead ops go, because the transposes become dead.
    ReadRowsInPlace(),
    # Because the expansions and JAX leave dead ops that would each cost a decision, and constants
    # inside loops that the next pass can only merge outside.
    Canonicalize(),
    # After it, because inlining leaves equal ops in one block: constants, casts, broadcasts.
    Cse(),
    # After it, because what is there twice for no reason has become one value; before the step is
    # cut, because then the two copies are in functions that round in their own ways.
    CompareOneCopy(),
    # Last, because it summarizes the final ops.
    SummarizeCalls(),
)

# The passes that carry decisions, made with what was decided by `shardc.cutting` and the planner.
DECIDING: tuple[type[Pass], ...] = (
    # First, because the batch is the same for every number of microbatches and wherever loops are
    # cut.
    FindBatch,
    # After the batch is found, because only what holds none of it is the same in every microbatch;
    # before loops are cut, so that the copies are cut with them, and before microbatches, which it
    # keeps from casting.
    CastParametersOnce,
    # Only where microbatches are refused without it, for a loop that needs sums over the batch on
    # its way; before loops are cut, so that both of the two are.
    FissionLoops,
    # Only where there are more microbatches than a loop has pieces; before loops are cut, so that
    # those inside are.
    JoinPieces,
    # Before microbatches, which then accumulate each stage's rows by themselves.
    CutLoops,
    # Before stages, which are planned for one microbatch.
    SplitMicrobatches,
    PlanStages,
    # After stages, each of which keeps its own values, and before residency is planned, which marks
    # more than this undoes.
    KeepForwardValues,
    # Before stages are outlined, which does what it says.
    PlanResidency,
    # Before shardings, so that a stage is planned with all uses of its parameters.
    OutlineStages,
    # Only for schedules with slices; after stages are outlined, because only functions of a
    # microbatch are cut into slices, and before the backward is split, which needs no loops of its
    # own then.
    UnrollLayers,
    # Only for schedules that run weight gradients apart; now that it is known what crosses stages,
    # and before the next, because a loop goes to one of the two functions whole.
    SplitBackwardLoops,
    SplitBackward,
    # Only for schedules with two copies of each stage, which are cut alike.
    ReplicateStages,
    # Only for schedules with slices; the functions of a slice are those of a stage, cut.
    SliceTokens,
    # Only where a plan gathers parameters; after all functions of a microbatch are there, and
    # before the next, because a sum is still seen to be one.
    GatherParameters,
    # Because now there are accumulators; before shardings, which hold for the loops as they will
    # run.
    AccumulateInLoops,
    # After functions are cut, because ops of two functions share nothing, and before shardings,
    # which it gives one more choice.
    ShareReshards,
    AssignMeshes,
    # Only for a plan made by hand, whose shardings constrain those that are planned.
    AskShardings,
    # The one that plans, or the one that replays a plan.
    PlanShardings,
    ApplyShardings,
)

LOCAL_LOWERING: tuple[Pass, ...] = (
    # First, because it makes every mismatch of shardings explicit as an op.
    InsertReshards(),
    # Before localising, because the sharding of each step defines the part that a device holds.
    LowerCollectives(),
    # After them, because it turns global types into local ones, and local values have no shardings.
    Localize(),
    # The last two, because they depend on how XLA treats the final ops.
    HideLoopEnds(),
    PinLayouts(),
)

XLA_LOWERING: tuple[Pass, ...] = (
    # Because XLA's partitioner knows neither operand shardings nor partial sums.
    AnnotateForXla(),
    # The last two, as above.
    HideLoopEnds(),
    PinLayouts(),
)

_EVERY: tuple[type[Pass], ...] = (
    *(type(each) for each in NORMALIZE),
    *DECIDING,
    *(type(each) for each in LOCAL_LOWERING),
    *(type(each) for each in XLA_LOWERING),
    WidenFloats,
)
PASSES: dict[str, type[Pass]] = {each.name: each for each in _EVERY}


def in_order(passes: Iterable[Pass]) -> list[Pass]:
    """Passes that carry decisions, in the order of `DECIDING`."""
    return sorted(passes, key=lambda each: DECIDING.index(type(each)))
