"""Assign every op to a pipeline stage, and clone the ops that several stages need."""

from collections import ChainMap
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.program.arguments import state_aliases
from shardc.analysis.program.def_use import Dataflow, StepFacts, dataflow, step_facts
from shardc.analysis.program.op_classes import NEVER_TWICE
from shardc.analysis.stages.cloned_ops import cloneable_ops
from shardc.analysis.stages.forward_backward import forward_ops
from shardc.analysis.stages.stage_assignment import StageAssignment, assign_stages
from shardc.analysis.stages.stage_cuts import balanced_cuts
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.analysis.stages.stage_work import work_of_forward_ops
from shardc.errors import StageError
from shardc.ir.attributes import (
    DIRECTION,
    KIND,
    NUM_MICROBATCHES,
    NUM_STAGES,
    PHASE,
    STAGE,
    arg_attrs,
    get_int,
    get_str,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.clone import clone_op, replace_inputs
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, terminator
from shardc.plan.function_kind import FunctionKind, Phase
from shardc.rules.partial_sums import keeps_partial

Key = tuple[int, Phase | FunctionKind]  # stage, and which of its functions


@dataclass(frozen=True)
class PlanStages(Pass):
    """Writes `shardc.stage` on every op, argument and result of @main.

    Reads the phases that shardc-split-microbatches wrote. Afterwards every op belongs to exactly
    one stage: ops that are cheap or the same in every microbatch are cloned into each stage and
    direction that uses them, and a gradient with contributions of several stages (of a tied
    parameter) is accumulated on each stage and added once, by the parameter's owner.

    Options:
        stages: number of stages to cut the forward ops into, balanced by FLOPs.
        cuts: instead, for each stage but the first, the position in @main of its first forward op.
    """

    name = "shardc-plan-stages"

    stages: int = 1
    cuts: tuple[int, ...] = field(default=())

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        aliases = state_aliases(main)
        flow = dataflow(main)
        microbatches = get_int(module, NUM_MICROBATCHES) or 1
        cut_ops = [flow.ops[cut] for cut in self._cuts(main, flow, aliases, microbatches)]
        while True:
            facts = step_facts(main, flow)
            forward = forward_ops(flow, facts, set(aliases.values()))
            if forward is None:
                forward = {i for i, phase in enumerate(facts.phase) if phase is Phase.BODY}
            place = {op: i for i, op in enumerate(flow.ops)}
            assigned = assign_stages(flow, facts, forward, aliases, [place[op] for op in cut_ops])
            if not _split_shared_gradients(flow, facts, assigned):
                break
            flow = dataflow(main)
        _write(main, flow, facts, assigned)
        module.attributes[NUM_STAGES] = int_attr(len(cut_ops) + 1)

    def _cuts(
        self, main: ir.Operation, flow: Dataflow, aliases: dict[int, int], microbatches: int
    ) -> list[int]:
        if not self.cuts and self.stages == 1:
            return []
        facts = step_facts(main, flow)
        forward = forward_ops(flow, facts, set(aliases.values()))
        if forward is None:
            raise StageError(
                f"{len(self.cuts) + 1 if self.cuts else self.stages} stages were asked for, but no"
                " result tells where the forward pass ends",
                code="SHARDC-161",
                help="return the loss from the step, or use stages=1",
            )
        if not self.cuts:
            order = sorted(forward - cloneable_ops(flow, facts, set(aliases)))
            work = work_of_forward_ops(flow, facts, forward, aliases, order, microbatches)
            cuts = balanced_cuts(flow, order, self.stages, work)
            if isinstance(cuts, StageRefusal):
                raise cuts.error()
            return cuts
        rising = list(self.cuts) == sorted(set(self.cuts))
        if not rising or not 0 <= self.cuts[0] <= self.cuts[-1] < len(flow.ops):
            raise StageError(
                f"the cuts {list(self.cuts)} are not rising positions of the {len(flow.ops)} ops of"
                " @main",
                code="SHARDC-162",
                help="give for each stage but the first the position of its first forward op",
            )
        return list(self.cuts)


def _split_shared_gradients(flow: Dataflow, facts: StepFacts, assigned: StageAssignment) -> bool:
    """Moves each accumulation before the linear ops that add gradients of several stages.

    False if there is none: every accumulation then sums values of one stage.
    """
    waiting = [
        (flow.ops[i], list(flow.op_inputs[i]))
        for i in facts.accumulates
        if get_str(flow.ops[i], KIND) == "sum" and i not in assigned.forward
    ]
    found = False
    while waiting:
        accumulate, sources = waiting.pop()
        for source in sources:
            if _adds_up_stages(flow, facts, assigned, source, set()):
                parts = _partial_operands(flow, facts, assigned, source)
                made = _accumulate_operands(accumulate, flow.ops[source], parts)
                waiting += [
                    (one, [j for j in flow.op_inputs[source] if operand in flow.ops[j].results])
                    for one, operand in made
                ]
                found = True
                break
    return found


def _adds_up_stages(
    flow: Dataflow, facts: StepFacts, assigned: StageAssignment, i: int, seen: set[int]
) -> bool:
    """Whether op `i`, or a linear op that it depends on, adds gradients of two stages."""
    if i in seen:
        return False
    seen.add(i)
    parts = _partial_operands(flow, facts, assigned, i)
    if not parts:
        return False
    sources = [j for j in flow.op_inputs[i] if j not in assigned.cloned]
    if len({assigned.stage[j] for j in sources}) > 1:
        return True
    return any(_adds_up_stages(flow, facts, assigned, j, seen) for j in sources)


def _partial_operands(
    flow: Dataflow, facts: StepFacts, assigned: StageAssignment, i: int
) -> set[int]:
    """The operands in which op `i` is linear, if the others are the same in every microbatch."""
    op = flow.ops[i]
    if op.name in NEVER_TWICE:
        return set()
    home: dict[ir.Value, int] = {
        result: j for j in flow.op_inputs[i] for result in flow.ops[j].results
    }
    cloned = {p for p, value in enumerate(op.operands) if home.get(value) in assigned.cloned}
    varying = {p for p in cloned if home[op.operands[p]] in facts.varying}
    own = {p for p, value in enumerate(op.operands) if value in home} - cloned
    if not own or varying or len(op.results) != 1 or len(op.regions) > 0:
        return set()
    return own if keeps_partial(op, own, set()) else set()


def _accumulate_operands(
    accumulate: ir.Operation, source: ir.Operation, parts: set[int]
) -> list[tuple[ir.Operation, ir.Value]]:
    """accumulate(f(a, b)) becomes f(accumulate(a), accumulate(b)) for a linear f.

    Returns:
        The new accumulations and their operands.
    """
    made = []
    with ir.InsertionPoint(accumulate), accumulate.location:
        sums: dict[ir.Value, ir.Value] = {}
        for operand in dict.fromkeys(source.operands[p] for p in sorted(parts)):
            one = ir.Operation.create(
                accumulate.name,
                results=[operand.type],
                operands=[operand],
                attributes={name: accumulate.attributes[name] for name in accumulate.attributes},
            )
            sums[operand] = one.results[0]
            made.append((one, operand))
        moved = clone_op(source, sums)
        moved.attributes[PHASE] = str_attr(Phase.AFTER)
    accumulate.results[0].replace_all_uses_with(moved.results[0])
    accumulate.erase()
    if not list(source.results[0].uses):
        source.erase()
    return made


def _write(main: ir.Operation, flow: Dataflow, facts: StepFacts, assigned: StageAssignment) -> None:
    """Clones the cloned ops for their users and writes the attributes."""
    keys: list[list[Key]] = [[] for _ in flow.ops]
    for i, phase in enumerate(facts.phase):
        if i not in assigned.cloned:
            keys[i] = [(assigned.stage[i], _function_kind(phase, i in assigned.forward))]
    needed: list[set[Key]] = [set(k) for k in keys]
    for r, (kind, index) in enumerate(flow.returned):
        if kind == "op" and index in assigned.cloned:
            home = Phase.BEFORE if facts.phase[index] is Phase.BEFORE else Phase.AFTER
            needed[index].add((assigned.result_stage[r], home))
    for i in reversed(range(len(flow.ops))):
        for j in flow.op_inputs[i]:
            if j in assigned.cloned:
                for stage, kind in needed[i]:
                    needed[j].add((stage, Phase.BEFORE if facts.phase[j] is Phase.BEFORE else kind))
        if i in assigned.cloned:
            keys[i] = sorted(needed[i])
    copies: dict[Key, dict[ir.Value, ir.Value]] = {}
    for i, op in enumerate(flow.ops):
        for key in keys[i][1:] if i in assigned.cloned else []:
            with ir.InsertionPoint(op), op.location:
                copy = clone_op(op, _visible(copies, key))
            _mark(copy, key)
            copies.setdefault(key, {}).update(zip(op.results, copy.results, strict=True))
        if keys[i]:
            key = keys[i][0]
            replace_inputs(op, _visible(copies, key))
            _mark(op, key)
    return_op = terminator(main)
    for r, (kind, index) in enumerate(flow.returned):
        if kind == "op" and index in assigned.cloned:
            home = Phase.BEFORE if facts.phase[index] is Phase.BEFORE else Phase.AFTER
            mapping = copies.get((assigned.result_stage[r], home), {})
            value = return_op.operands[r]
            return_op.operands[r] = mapping.get(value, value)
    for i in reversed(range(len(flow.ops))):
        if not keys[i]:
            flow.ops[i].erase()
    _write_owners(main, assigned)


def _visible(copies: dict[Key, dict[ir.Value, ir.Value]], key: Key) -> ChainMap[ir.Value, ir.Value]:
    """Original value -> the copy that function `key` uses: its own, or its stage's "before"."""
    return ChainMap(copies.get(key, {}), copies.get((key[0], Phase.BEFORE), {}))


def _function_kind(phase: Phase, forward: bool) -> Phase | FunctionKind:
    if phase is not Phase.BODY:
        return phase
    return FunctionKind.FORWARD if forward else FunctionKind.BACKWARD


def _mark(op: ir.Operation, key: Key) -> None:
    stage, kind = key
    op.attributes[STAGE] = int_attr(stage)
    if kind in (FunctionKind.FORWARD, FunctionKind.BACKWARD):
        op.attributes[PHASE] = str_attr(Phase.BODY)
        op.attributes[DIRECTION] = str_attr(kind)
    else:
        op.attributes[PHASE] = str_attr(kind)


def _write_owners(main: ir.Operation, assigned: StageAssignment) -> None:
    args = arg_attrs(main)
    for n in range(len(body(main).arguments)):
        args[n][STAGE] = int_attr(max(assigned.arg_stage[n], 0))
    set_arg_attrs(main, args)
    results = result_attrs(main)
    for r, stage in enumerate(assigned.result_stage):
        results[r][STAGE] = int_attr(stage)
    set_result_attrs(main, results)
