"""Where ops, parameters and results go when the forward pass is cut."""

from pathlib import Path

import pytest

from shardc.analysis.program.arguments import state_aliases
from shardc.analysis.program.def_use import dataflow, step_facts
from shardc.analysis.stages.cloned_ops import cloneable_ops
from shardc.analysis.stages.forward_backward import forward_ops
from shardc.analysis.stages.stage_assignment import assign_stages
from shardc.analysis.stages.stage_cuts import balanced_cuts, count_heavy_ops, layer_starts
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.ir.attributes import (
    ACCUMULATE,
    DIRECTION,
    PHASE,
    STAGE,
    arg_attrs,
    call_target,
    get_int,
    get_str,
    result_attrs,
)
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import main_function, ops
from shardc.passes.plan_stages import PlanStages

INPUTS = Path(__file__).parents[3] / "lit" / "inputs"
TIED_STEP = (INPUTS / "tied_step.mlir").read_text()
BIAS_STEP = (INPUTS / "bias_step.mlir").read_text()
SECOND_LAYER = 6  # position of the dot with w2


class Staged:
    """The tied step cut in front of its second layer; ops are found by what they are."""

    def __init__(self, cuts=(SECOND_LAYER,), text=TIED_STEP):
        self.module = parse(text)
        run_passes(self.module, [PlanStages(cuts=cuts)])
        self.main = main_function(self.module.operation)

    def of(self, name, phase=None, direction=None):
        """Stages of the ops called `name`, in program order."""
        return [
            get_int(op, STAGE)
            for op in ops(self.main)
            if op.name == f"stablehlo.{name}"
            and (phase is None or get_str(op, PHASE) == phase)
            and (direction is None or get_str(op, DIRECTION) == direction)
        ]

    def accumulates(self):
        return [get_int(op, STAGE) for op in ops(self.main) if call_target(op) == ACCUMULATE]

    def owners(self, attrs):
        with self.module.context:
            return [int(each[STAGE].value) for each in attrs(self.main)]


@pytest.fixture
def staged():
    return Staged()


def test_forward_ops_are_cut_by_position(staged):
    assert staged.of("dot_general", direction="forward") == [0, 1, 1]


def test_every_op_has_one_stage_and_values_only_flow_with_time(staged):
    stage_of = {}
    for op in ops(staged.main):
        stage = get_int(op, STAGE)
        assert stage is not None
        for value in op.operands:
            before = stage_of.get(value)
            if before is not None and get_str(op, DIRECTION) == "forward":
                assert before <= stage
        stage_of.update(dict.fromkeys(op.results, stage))


def test_weight_gradients_stay_with_their_weight(staged):
    # dw_b and dy0 and dw2 and dt on the stage of their weights; dw_a is the gradient of stage 0.
    assert staged.of("dot_general", direction="backward") == [1, 1, 1, 1, 0]


def test_one_cotangent_crosses_the_cut(staged):
    crossing = {
        value
        for op in ops(staged.main)
        if get_str(op, DIRECTION) == "backward" and get_int(op, STAGE) == 0
        for value in op.operands
        if not hasattr(value.owner, "operations") and get_int(value.owner.operation, STAGE) == 1
    }
    assert len(crossing) == 1


def test_a_tied_gradient_is_accumulated_on_each_stage_and_added_once_by_the_owner(staged):
    # The loss, the two parts of the gradient of w, the gradient of w2.
    assert staged.accumulates() == [1, 1, 0, 1]
    first, *_ = [op for op in ops(staged.main) if op.name == "stablehlo.add" and _adds_sums(op)]
    assert (get_str(first, PHASE), get_int(first, STAGE)) == ("after", 0)
    assert staged.of("add", direction="backward") == [1]  # dy; the add per microbatch is gone


def _adds_sums(op):
    return all(
        not hasattr(value.owner, "operations") and call_target(value.owner.operation) == ACCUMULATE
        for value in op.operands
    )


def test_scalars_of_the_optimizer_are_copied_to_each_stage(staged):
    assert sorted(staged.of("broadcast_in_dim", phase="after")) == [0, 1]
    assert sorted(staged.of("constant", phase="after")) == [0, 0, 1, 1]


def test_parameters_and_results_have_their_owner(staged):
    assert staged.owners(arg_attrs) == [0, 1, 0, 0]
    assert staged.owners(result_attrs) == [0, 1, 0, 1]


def test_the_owner_of_a_state_returns_its_next_value():
    for cut in (SECOND_LAYER, SECOND_LAYER + 1):
        staged = Staged((cut,))
        aliases = state_aliases(staged.main)
        args, results = staged.owners(arg_attrs), staged.owners(result_attrs)
        assert all(args[n] == results[r] for n, r in aliases.items())


def test_a_bias_gradient_is_summed_where_its_bias_lives():
    """The cotangent crosses the cut anyway, so its sum over the batch need not."""
    staged = Staged(cuts=(7,), text=BIAS_STEP)
    assert staged.of("dot_general") == [0, 1, 1, 1, 0]
    assert staged.of("reduce", direction="backward") == [0]
    assert staged.owners(arg_attrs)[:3] == [0, 0, 1]


# ---- cuts ---------------------------------------------------------------------------------------


def facts_of(text=TIED_STEP):
    module = parse(text)
    main = main_function(module.operation)
    flow = dataflow(main)
    facts = step_facts(main, flow)
    aliases = state_aliases(main)
    forward = forward_ops(flow, facts, set(aliases.values()))
    order = sorted(forward - cloneable_ops(flow, facts, set(aliases)))
    return module, flow, facts, aliases, forward, order


def test_forward_is_what_the_loss_depends_on():
    _module, flow, _facts, _aliases, _forward, order = facts_of()
    names = [flow.ops[i].name for i in order]
    assert names.count("stablehlo.dot_general") == count_heavy_ops(flow, order) == 3
    assert names[-1] == "stablehlo.custom_call"  # the sum of the loss


def test_balanced_cuts_give_each_stage_a_layer():
    _module, flow, facts, aliases, forward, order = facts_of()
    for stages in (1, 2, 3):
        cuts = balanced_cuts(flow, order, stages)
        assert len(cuts) == stages - 1
        assigned = assign_stages(flow, facts, forward, aliases, cuts)
        heavy = [assigned.stage[i] for i in order if flow.ops[i].name == "stablehlo.dot_general"]
        assert set(heavy) == set(range(stages))


def test_there_are_no_more_layers_than_matrix_products():
    _module, flow, *_, order = facts_of()
    starts = layer_starts(flow, order, 16)
    assert len(starts) == 3
    assert starts[0] == order[0]
    refusal = balanced_cuts(flow, order, 4)
    assert isinstance(refusal, StageRefusal) and refusal.most == 3
    assert refusal.error().code == "SHARDC-160"
    assert "4 stages were asked for, but the forward pass has 3 layers" in refusal.message
