"""Guess which dims of which arguments are the batch: by what the microbatches would then share."""

from jax.extend.mlir import ir

from shardc.analysis.batch.accumulations import analyse
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.step_program import Program
from shardc.analysis.program.arguments import BatchChoice, batch_choices

MAX_RANK = 8  # dims that are tried as the batch dim
MAX_LEAVES = 16  # a guess with more arguments is taken whole or not at all
# A guess under which the microbatches do less than this share of all FLOPs is a poor one.
LEAST_SHARE = 0.25
# One under which they do this share ends the search: other dims are not tried.
GOOD_SHARE = 0.9


def independent_rows(function: ir.Operation, program: Program) -> BatchFlow | None:
    """A guess among arguments of all kinds, if the microbatches then share nearly all the work and
    never meet, not even in sums: rows of caches and last tokens, in a step of decoding.
    """
    graph = program.graph
    behind_heavy = BatchFlow(program, {}, seeds=frozenset(range(graph.num_args))).behind_heavy
    if any(graph.shapes[v] == () and behind_heavy[v] for v in graph.returned):
        return None  # a loss
    for dim in range(MAX_RANK):
        for choice in batch_choices(function, list(range(graph.num_args)), dim):
            flow = BatchFlow(program, dict(choice.args))
            meet = flow.run() or flow.wholes
            if not meet and shares_work(flow):
                return flow
    return None


def best_flow(
    function: ir.Operation, program: Program, allowed: list[int], together: bool = False
) -> BatchFlow | None:
    """The analysis of the best guess: no obstacle, then most work cut, then fewest gathers."""
    found: list[BatchFlow] = []
    good: list[BatchFlow] = []
    for dim in range(MAX_RANK):
        choices = batch_choices(function, allowed, dim)
        if together:
            choices = [c for c in choices if len(c.args) == len(allowed)]
        useful: list[BatchFlow] = []
        # Most likely first: a batch has few leaves and comes behind the parameters.
        for choice in sorted(choices, key=lambda c: (len(c.args), -max(c.args))):
            flow = _pruned(program, choice, together)
            plausible = flow.work_on_batch and not _is_features(flow)
            if together or plausible or not sum(program.heavy_flops):
                useful.append(flow)
            if _is_perfect(flow):
                break
        good += [f for f in useful if _rank(f) == 3]
        if any(f.cut_flops >= GOOD_SHARE * sum(program.heavy_flops) for f in good):
            break
        found += useful if dim == 0 or together else []
    return max(good or found, key=_score, default=None)


def _is_features(flow: BatchFlow) -> bool:
    """Whether a guess only makes products wait for each other's sums over it, and none has it in
    its result: it is what they contract (the rows of all weights), not examples.
    """
    working = [i for i in flow.cuts if flow.program.heavy[i]]
    return (
        flow.earlier_run is not None
        and not flow.loops
        and not any(flow.states[v].varies for i in working for v in flow.program.graph.results[i])
    )


def shares_work(flow: BatchFlow) -> bool:
    """Whether a guess lets the microbatches share nearly all the work in one run."""
    return _rank(flow) == 3 and flow.cut_flops >= GOOD_SHARE * sum(flow.program.heavy_flops) > 0


def _is_perfect(flow: BatchFlow) -> bool:
    """Whether the microbatches share all the work and nothing is gathered."""
    total = sum(flow.program.heavy_flops)
    hindered = flow.obstacle or flow.earlier_run or flow.wholes
    return not hindered and 0 < total == flow.cut_flops


def _rank(flow: BatchFlow) -> int:
    """3: the microbatches share the work; 2: in two runs; 1: there is an obstacle; 0: they do
    little of it."""
    if flow.obstacle is not None:
        return 1
    if flow.cut_flops < LEAST_SHARE * sum(flow.program.heavy_flops):
        return 0
    return 2 if flow.earlier_run else 3


def _score(flow: BatchFlow) -> tuple[int, int, int, int, int]:
    return (
        _rank(flow),
        flow.cut_flops,
        -len(flow.wholes),
        len(flow.batch_args),
        max(flow.batch_args),
    )


def _pruned(program: Program, choice: BatchChoice, together: bool) -> BatchFlow:
    """The analysis of a guess, without arguments that are only ever used whole ([T, T] masks)."""
    best = analyse(program, dict(choice.args))
    imperfect = best.wholes or best.obstacle or best.earlier_run
    if together or not imperfect or len(choice.args) > MAX_LEAVES:
        return best
    for a in choice.args:
        fewer = {b: dim for b, dim in best.batch_args.items() if b != a}
        if fewer and a in best.batch_args:
            trial = analyse(program, fewer)
            if _score(trial)[:3] > _score(best)[:3] and _covers(trial, choice):
                best = trial
    return best


def _covers(flow: BatchFlow, choice: BatchChoice) -> bool:
    """Whether the heavy ops that depend on a guess all depend on what is left of it."""
    program = flow.program
    guess = BatchFlow(program, dict(choice.args))
    return not any(
        heavy and any(guess.depends[u] for u in used) and not any(flow.depends[u] for u in used)
        for heavy, used in zip(program.heavy, program.graph.uses, strict=True)
    )


def with_other_batches(
    function: ir.Operation, best: BatchFlow, state: set[int], count: int
) -> BatchFlow:
    """`best`, with arguments of other sizes cut, too, along which the rest of the work runs.

    A step may have several batches that never meet but in sums: labelled and unlabelled examples.
    """
    program = best.program
    free = [a for a in range(program.graph.num_args) if a not in state]
    for dim in range(MAX_RANK):
        for choice in batch_choices(function, [a for a in free if a not in best.batch_args], dim):
            if _is_perfect(best):
                return best
            if choice.size % count or not _has_work_of_its_own(best, choice):
                continue
            flow = analyse(program, {**best.batch_args, **choice.args})
            more = flow.cut_flops > best.cut_flops and len(flow.wholes) <= len(best.wholes)
            one_run = best.earlier_run or not flow.earlier_run
            if flow.obstacle is None and flow.parts % count == 0 and more and one_run:
                best = flow
    return best


def _has_work_of_its_own(best: BatchFlow, choice: BatchChoice) -> bool:
    """Whether a heavy op depends on the arguments of `choice`, and on nothing that `best` cuts."""
    guess = BatchFlow(best.program, dict(choice.args))
    return any(
        heavy and any(guess.depends[u] for u in used) and not any(best.depends[u] for u in used)
        for heavy, used in zip(best.program.heavy, best.program.graph.uses, strict=True)
    )
