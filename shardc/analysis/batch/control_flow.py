"""What a microbatch holds of the values inside control flow: the dataflow through its regions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import (
    INVARIANT,
    Cut,
    FactorCut,
    Kind,
    State,
    cut_states,
    from_factor,
    may_cut,
    most_parts,
    to_factor,
)
from shardc.analysis.batch.strip_mining import StripMining, strip_mine
from shardc.analysis.program.op_classes import IDENTITIES
from shardc.ir.clone import inputs
from shardc.ir.constants import is_zero
from shardc.ir.walk import CONTROL_FLOW, block_terminator, walk
from shardc.rules.op_rule import OpRule
from shardc.rules.partial_sums import keeps_partial

WAITING = State(Kind.INVARIANT, 1)  # of a value that waits for a sum that the loop itself makes
Rules = Mapping[ir.Value, OpRule]  # by the first result of an op inside a region


@dataclass
class RegionFlow:
    """The fixed point of the dataflow inside one loop or branch.

    Attributes:
        carries: state of each loop-carried value, on entry, per iteration and on exit; [] for a
            branch.
        results: states of the op's results.
        states: of every value inside, block arguments and nested control flow included; values of
            nested control flow that uses nothing of the batch are absent: all invariant.
        cuts: first result of an op inside -> the factor of it that the microbatches cut.
        rules: of the ops inside.
        captured: invariant captured values whose users inside all need the same part -> its cut:
            the whole value is not needed.
        limits: the number of microbatches must divide each of these.
        strip_mined: first result of a loop whose iterations are shared out -> how.
        waiting: sums over the batch that an iteration needs complete; values that depend on them
            have sweep 1. Such a loop works on parts only once it is split (loop fission). None:
            such a loop is refused.
    """

    carries: list[State]
    rules: Rules
    results: list[State] = field(default_factory=list)
    states: dict[ir.Value, State] = field(default_factory=dict)
    cuts: dict[ir.Value, FactorCut] = field(default_factory=dict)
    captured: dict[ir.Value, Cut] = field(default_factory=dict)
    limits: list[int] = field(default_factory=list)
    strip_mined: dict[ir.Value, StripMining] = field(default_factory=dict)
    waiting: list[ir.Value] | None = None

    def strip_mining_of(self, op: ir.Operation) -> StripMining | None:
        """How `op` is strip-mined; None if it is not."""
        return self.strip_mined.get(op.results[0]) if len(op.results) > 0 else None

    def give(self, op: ir.Operation, results: list[State]) -> None:
        """Records the states of the results of `op` itself."""
        self.results = results
        self.states.update(zip(op.results, results, strict=True))


def analyse(
    op: ir.Operation,
    states: list[State],
    captured: Mapping[ir.Value, State],
    rules: Rules,
    *,
    may_wait: bool = False,
) -> RegionFlow | None:
    """The states inside an op of control flow; None if it cannot work on parts of the batch.

    Args:
        states: of the operands, all of sweep 0.
        captured: states of the values from outside that the regions use.
        may_wait: whether iterations of a loop may need complete sums over the batch, collected in
            `waiting`; a loop that can be strip-mined does not wait.
    """
    if op.name != "stablehlo.while":
        return analyse_branch(op, states, captured, rules)
    found = analyse_loop(op, states, captured, rules, may_wait=may_wait)
    if found is not None and not found.waiting:
        return found
    return _analyse_strip_mined(op, states, captured, rules) or found


def analyse_loop(
    op: ir.Operation,
    states: list[State],
    captured: Mapping[ir.Value, State],
    rules: Rules,
    *,
    may_wait: bool = False,
) -> RegionFlow | None:
    """Iterates the states around a `stablehlo.while` to a fixed point; None if there is none.

    An invariant initial value of a varying carry is cut; zeros may become a partial sum. Arguments
    as for `analyse`.
    """
    condition, block = (region.blocks[0] for region in op.regions)
    unsettled = {p for p, v in enumerate(op.operands) if is_zero(v) and states[p] == INVARIANT}
    carries = list(states)
    # Each pass settles at least one carry, or is the last but one.
    for _ in range(2 * len(carries) + 2):
        loop = RegionFlow(carries, rules, waiting=[] if may_wait else None)
        loop.states.update(captured)
        zeros = {block.arguments[p] for p in unsettled}
        out = _run_block(block, loop, zeros)
        if out is None:
            return None
        joined = [
            _join(before, after, p in unsettled)
            for p, (before, after) in enumerate(zip(carries, out, strict=True))
        ]
        agreed = [state for state in joined if state is not None]
        if len(agreed) < len(joined):
            return None
        if agreed == carries and not unsettled:
            done = _run_block(condition, loop, set())
            loop.give(op, carries)
            earlier = WAITING in carries and not loop.waiting  # sums of earlier iterations alone
            return loop if done == [INVARIANT] and not earlier else None
        if agreed == carries:  # a carry that is still invariant need not stay zero
            unsettled = set()
        unsettled = {p for p in unsettled if agreed[p] == INVARIANT}
        carries = agreed
    return None


def _analyse_strip_mined(
    op: ir.Operation, states: list[State], captured: Mapping[ir.Value, State], rules: Rules
) -> RegionFlow | None:
    """The states around a loop over blocks of the batch that can be strip-mined."""
    shared = strip_mine(op, states, captured)
    if shared is None:
        return None
    loop = RegionFlow(shared.carries, rules, limits=[shared.mining.counted.trips])
    loop.states.update(captured)
    for region in op.regions:
        loop.states.update(zip(region.blocks[0].arguments, shared.carries, strict=True))
    loop.strip_mined[op.results[0]] = shared.mining
    loop.give(op, shared.carries)
    return loop


def analyse_branch(
    op: ir.Operation, states: list[State], captured: Mapping[ir.Value, State], rules: Rules
) -> RegionFlow | None:
    """The states inside an `if` or `case` in which every microbatch takes the same branch; None if
    the predicate depends on the batch or the branches disagree. Arguments as for `analyse_loop`."""
    if states != [INVARIANT]:
        return None
    branch = RegionFlow([], rules)
    branch.states.update(captured)
    outs = []
    for region in op.regions:
        block = region.blocks[0]
        out = _run_block(block, branch, set())
        if out is None:
            return None
        ends = block_terminator(block).operands
        outs.append([(state, is_zero(value)) for state, value in zip(out, ends, strict=True)])
    joined = [_agreement(each) for each in zip(*outs, strict=True)]
    agreed = [state for state in joined if state is not None]
    if len(agreed) < len(joined):
        return None
    branch.give(op, agreed)
    return branch


def _agreement(given: tuple[tuple[State, bool], ...]) -> State | None:
    """The join of a result's states over the branches, each with whether the value is zero there.

    A value that is whole in one branch can be cut there; zeros are partial sums.
    """
    found = {state for state, _ in given if state != INVARIANT}
    if not found:
        return INVARIANT
    state = found.pop()
    if found:
        return None
    whole = any(each == INVARIANT and not zero for each, zero in given)
    return None if state.is_partial and whole else state


def _join(before: State, after: State, zero: bool) -> State | None:
    """The join of a carry's state `before` an iteration and `after` it; None if they conflict."""
    if WAITING in (before, after):
        return WAITING
    if before == after or after == INVARIANT:
        return before if not before.is_partial or after.is_partial else None
    if before == INVARIANT and (after.varies or (zero and after.is_partial)):
        return after
    return None


def take_parts(op: ir.Operation, loop: RegionFlow, values: Iterable[ir.Value]) -> None:
    """Records which captured values a loop or branch needs only one part of."""
    cuts: dict[ir.Value, set[Cut | None]] = {
        value: set() for value in values if loop.states[value] == INVARIANT
    }
    for inner in walk(op) if cuts else ():
        for position, value in enumerate(inner.operands):
            if value in cuts:
                cuts[value].add(inner_cut(loop, inner, position))
    for value, found in cuts.items():
        cut = found.pop() if len(found) == 1 else None
        if cut is not None:
            loop.captured[value] = cut
            loop.states[value] = State(Kind.VARYING, 0, cut)


def inner_cut(loop: RegionFlow, op: ir.Operation, position: int) -> Cut | None:
    """Where an operand of an op inside must be cut; None if it already has the right form."""
    if loop.states.get(op.operands[position], INVARIANT) != INVARIANT:
        return None
    if op.name == "stablehlo.return":
        parent = op.parent
        if parent is None:
            return None
        if parent.name == "stablehlo.while" and parent.regions[1].blocks[0] != op.block:
            return None
        return loop.states.get(parent.results[position], INVARIANT).cut
    if op.name == "stablehlo.while":
        carry = op.regions[1].blocks[0].arguments[position]
        return loop.states.get(carry, INVARIANT).cut
    if len(op.results) == 0 or op.results[0] not in loop.cuts:
        return None
    rule = loop.rules[op.results[0]]
    return from_factor(rule, rule.operands[position], loop.cuts[op.results[0]])


def _run_block(block: ir.Block, loop: RegionFlow, zeros: set[ir.Value]) -> list[State] | None:
    """States of the operands of a block's terminator; None if an op cannot work on parts."""
    for argument, state in zip(block.arguments, loop.carries, strict=True):
        loop.states[argument] = state
    for each in block.operations:
        op = each.operation
        states = [loop.states[v] for v in op.operands]
        if op.name == "stablehlo.return":
            return states
        results = transfer(op, states, loop, zeros)
        if results is None:
            return None
        loop.states.update(zip(op.results, results, strict=True))
    return None


def transfer(
    op: ir.Operation, states: list[State], loop: RegionFlow, zeros: set[ir.Value]
) -> list[State] | None:
    """States of the results of an op inside a loop or branch; None if it cannot work on parts.

    Args:
        states: of its operands.
        zeros: values of the loop that are still zero and may become partial sums.
    """
    count = len(op.results)
    if op.name in IDENTITIES:
        return states
    used = {v: loop.states[v] for v in inputs(op) if v in loop.states}
    if all(state == INVARIANT for state in used.values()):
        return [INVARIANT] * count
    if WAITING in used.values() and loop.waiting is not None:
        loop.waiting += [v for v, state in used.items() if state.is_partial]
        return [WAITING] * count
    if op.name in CONTROL_FLOW:
        nested = analyse(op, states, used, loop.rules)
        if nested is None:
            return None
        loop.states.update(nested.states)
        loop.cuts.update(nested.cuts)
        loop.limits.extend(nested.limits)
        loop.strip_mined.update(nested.strip_mined)
        return nested.results
    if any(used[v] != INVARIANT for v in used if v not in list(op.operands)):
        return None  # a reducer with captures that depend on the batch
    partial = {p for p, state in enumerate(states) if state.is_partial}
    if partial:
        zero = {p for p, v in enumerate(op.operands) if v in zeros or is_zero(v)}
        linear = not any(s.varies for s in states) and keeps_partial(op, partial, zero)
        if not linear and loop.waiting is not None:
            loop.waiting += [op.operands[p] for p in sorted(partial)]
            return [WAITING] * count
        return [State(Kind.PARTIAL)] * count if linear else None
    return _cut(op, states, loop)


def _cut(op: ir.Operation, states: list[State], loop: RegionFlow) -> list[State] | None:
    """States of the results of an op with varying operands; None if it cannot compute a part."""
    rule = loop.rules.get(op.results[0])
    if rule is None:
        return None
    factors = {
        to_factor(rule, rule.operands[p], state.cut)
        for p, state in enumerate(states)
        if state.cut is not None
    }
    factor = factors.pop()
    if factor is None or factors or may_cut(op, rule, factor) is None:
        return None
    loop.cuts[op.results[0]] = factor
    loop.limits.append(most_parts(rule, factor))
    return cut_states(rule, factor)
