"""Which ops are cloned into every stage that uses them instead of belonging to one."""

from shardc.analysis.program.def_use import Dataflow, StepFacts
from shardc.analysis.program.op_classes import NEVER_TWICE
from shardc.analysis.stages.compared_values import compared_clones
from shardc.ir.attributes import MICROBATCH_INDEX, call_target
from shardc.ir.tensor_types import num_elements
from shardc.plan.function_kind import Phase


def cloneable_ops(flow: Dataflow, facts: StepFacts, state_args: set[int]) -> set[int]:
    """Positions of the ops that are cloned to their users.

    These are: the phase "before"; light ops of the body that are the same in every
    microbatch; light preprocessing of the batch (no state, no heavy op upstream); in the update,
    ops on single-element arguments, and broadcasts of one element: a clone needs only one number,
    and parameters of one shape that share a broadcast learning rate can be on different stages.
    Floats that meet what was chosen from a clone of them run once, and are sent.
    """
    once: set[int] = set()
    while True:
        found = _light_ops(flow, facts, once, state_args)
        met = compared_clones(flow, found)
        if not met:
            return found
        once |= met


def _light_ops(flow: Dataflow, facts: StepFacts, once: set[int], state_args: set[int]) -> set[int]:
    found: set[int] = set()
    for i, phase in enumerate(facts.phase):
        if i in once:
            continue
        if phase is Phase.BEFORE or (
            i not in facts.accumulates
            and _is_light(flow, i)
            and (
                _body_clones(flow, facts, i, found, state_args)
                if phase is Phase.BODY
                else _update_clones(flow, i, found)
            )
        ):
            found.add(i)
    return found


def gives_scalars(flow: Dataflow, i: int) -> bool:
    """Whether every result of op number `i` has one element."""
    return all(num_elements(result) <= 1 for result in flow.ops[i].results)


def is_scalar_arithmetic(flow: Dataflow, i: int) -> bool:
    """Whether all operands and results of op number `i` have one element."""
    return gives_scalars(flow, i) and all(num_elements(v) <= 1 for v in flow.ops[i].operands)


def argument_size(flow: Dataflow, arg: int) -> int:
    """Elements of argument number `arg`."""
    return num_elements(flow.ops[0].block.arguments[arg])


def _is_light(flow: Dataflow, i: int) -> bool:
    op = flow.ops[i]
    return op.name not in NEVER_TWICE or call_target(op) == MICROBATCH_INDEX


def _body_clones(
    flow: Dataflow, facts: StepFacts, i: int, cloned: set[int], state_args: set[int]
) -> bool:
    if not cloned.issuperset(flow.op_inputs[i]):
        return False
    big_state = any(n in state_args and argument_size(flow, n) > 1 for n in flow.arg_inputs[i])
    return i not in facts.varying or not big_state


def _update_clones(flow: Dataflow, i: int, cloned: set[int]) -> bool:
    if any(argument_size(flow, n) > 1 for n in flow.arg_inputs[i]):
        return False
    if gives_scalars(flow, i):
        return is_scalar_arithmetic(flow, i) and cloned.issuperset(flow.op_inputs[i])
    return all(j in cloned or gives_scalars(flow, j) for j in flow.op_inputs[i])
